#include "fs/node/drain.h"

#include <algorithm>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr size_t kBufferBytes = 256 * kKiB;     // stays in the processor's cache: written, and read again
constexpr uint64_t kWritebackBytes = 8 * kMiB;  // handed to the disk at once
constexpr size_t kMarkBytesMax = 64 * kKiB;
constexpr int kAsideMax = 100;  // files of one name that are kept aside

using How = DrainMark::How;

// Each name of the path below the root is one, and it is none of ours.
Status expect_beneath(const std::string& path, const std::string& root) {
  bool good = path.starts_with(root + "/");
  std::string_view rest = good ? std::string_view(path).substr(root.size() + 1) : "";
  if (rest == kSwaleDirectory || rest.starts_with(std::string(kSwaleDirectory) + "/")) good = false;
  while (good && !rest.empty()) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    good = io::is_one_name(rest.substr(0, slash));
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (good) return {};
  return invalid_argument("{}: it is no path of a file beneath {}", path, root);
}

bool has_no_name(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kBusy;
}

}  // namespace

Result<std::unique_ptr<Drain>> Drain::open(NodeFiles& files, Backing& backing,
                                           const DrainOptions& options) noexcept {
  std::unique_ptr<Drain> drain;
  const Status status = contain([&]() -> Status {
    if (!io::is_one_name(options.job))
      return invalid_argument("'{}': the name of a job must be one that a file can have", options.job);
    drain.reset(new Drain(files, backing, options));
    SWALE_RETURN_IF_ERROR(drain->prepare());
    return drain->resume();
  });
  if (!status.ok()) return status;
  return drain;
}

Status Drain::prepare() {
  const std::string top = backing_.root() + "/" + kSwaleDirectory;
  SWALE_RETURN_IF_ERROR(io::make_directories(backing_.device(), top));
  SWALE_ASSIGN_OR_RETURN(const auto outer, backing_.device().anchored_private(top));
  folder_ = top + "/" + options_.job;
  SWALE_RETURN_IF_ERROR(io::make_directories(*outer, folder_));
  SWALE_ASSIGN_OR_RETURN(private_, outer->anchored_private(folder_));
  SWALE_ASSIGN_OR_RETURN(buffer_, Buffer::allocate(kBufferBytes));
  return {};
}

// Files whose drain cannot be finished now stay marked, and are drained later as others are.
Status Drain::resume() {
  SWALE_ASSIGN_OR_RETURN(const auto names, private_->list(folder_));
  for (const std::string& name : names) {
    const auto marked = marked_file(kMarkPrefix, name);
    if (!marked) continue;
    const auto outcome = file(*marked);
    if (!outcome.ok()) log_warn("{}; its drain goes on later", outcome.status().message());
  }
  for (const std::string& name : names) {
    const bool ours = name.starts_with(kNewPrefix) || name.starts_with(kMarkPrefix);
    if (!ours || marked_file(kMarkPrefix, name)) continue;
    const Status removed = private_->remove(folder_ + "/" + name);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  return {};
}

std::string Drain::own_path(const char* prefix, const meta::FileId& file) const {
  return folder_ + "/" + marked_name(prefix, file);
}

Result<std::unique_ptr<io::File>> Drain::open_if_there(const std::string& path, io::OpenMode mode) {
  auto file = backing_.device().open(path, mode);
  if (file.status().code() == Code::kNotFound) return std::unique_ptr<io::File>();
  return file;
}

Result<std::optional<DrainMark>> Drain::mark_of(const meta::FileId& file) {
  const std::string path = own_path(kMarkPrefix, file);
  const auto text = io::read_file(*private_, path, kMarkBytesMax);
  if (text.status().code() == Code::kNotFound) return std::optional<DrainMark>();
  SWALE_RETURN_IF_ERROR(text.status());
  SWALE_ASSIGN_OR_RETURN(DrainMark mark, decode_mark(*text, path));
  return std::optional<DrainMark>(std::move(mark));
}

Status Drain::put_mark(const Work& work, const std::string& path, const Stamp& stamp) {
  if (!options_.rules.mark) return {};
  const DrainMark mark{work.how, path.substr(backing_.root().size() + 1), stamp};
  return io::replace_file(*private_, own_path(kMarkPrefix, work.file), encode_mark(mark));
}

Status Drain::remove_mark(const meta::FileId& file) {
  const Status removed = private_->remove(own_path(kMarkPrefix, file));
  if (removed.code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(removed);
  return private_->sync_directory(folder_);
}

// A mark of a copy aside fits that file alone, as it was: if a power loss brings it back, it still says what
// is true. One of a file changed in place would cover what others do.
Status Drain::unmark(const meta::FileId& file, DrainMark::How how) {
  if (how == How::kInPlace) {
    SWALE_RETURN_IF_ERROR(remove_mark(file));
  } else {
    const Status removed = private_->remove(own_path(kMarkPrefix, file));
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  unmarked_.erase(file);
  return {};
}

// Runs a step of the work; a failure ends the work.
template <class Call>
auto Drain::step(const Call& call) noexcept {
  using Answer = decltype(call());
  Answer answer = Status(Code::kInternal, Scope::kOperation, "no drain has begun");
  const Status contained = contain([&] {
    if (work_) answer = call();
  });
  if (!contained.ok()) answer = contained;
  if (!answer.ok()) abandon();
  return answer;
}

Result<bool> Drain::begin(const meta::FileId& id) noexcept {
  if (work_) return Status(Code::kBusy, Scope::kOperation, "another file is being drained");
  std::unique_ptr<Work> work;
  SWALE_RETURN_IF_ERROR(contain([&] { work = std::make_unique<Work>(); }));
  auto fixed = files_.fix(id);
  if (fixed.status().code() == Code::kNotFound) {
    const Status unmarked = contain([&] { return remove_mark(id); });
    return unmarked.ok() ? Result<bool>(false) : unmarked;
  }
  if (!fixed.ok()) return fixed.status();
  work_ = std::move(work);
  work_->file = id;
  work_->fixed = std::move(*fixed);
  return step([&]() -> Result<bool> {
    const auto path = backing_.path_of(id);
    if (has_no_name(path.status())) {
      abandon();
      SWALE_RETURN_IF_ERROR(remove_mark(id));
      return false;
    }
    SWALE_RETURN_IF_ERROR(path.status());
    work_->path = *path;
    SWALE_RETURN_IF_ERROR(expect_beneath(*path, backing_.root()));
    // A mark says that we have changed the file; after a drain it would cover what others do.
    if (unmarked_.contains(id)) SWALE_RETURN_IF_ERROR(unmark(id, How::kInPlace));
    SWALE_RETURN_IF_ERROR(look(*work_));
    SWALE_RETURN_IF_ERROR(plan(*work_));
    SWALE_RETURN_IF_ERROR(open_out(*work_));
    return true;
  });
}

// Is the file with that name what it was when this node began to write it, or what a drain of ours that was
// killed has made of it?
Status Drain::look(Work& work) {
  SWALE_ASSIGN_OR_RETURN(work.target, open_if_there(work.path, io::OpenMode::kRead));
  if (work.target) {
    SWALE_ASSIGN_OR_RETURN(work.found, backing_.stamp(*work.target));
  }
  SWALE_ASSIGN_OR_RETURN(const auto mark, mark_of(work.file));
  // One that is changed in place may have been renamed since.
  const bool changed = mark && mark->how == How::kInPlace && work.target != nullptr &&
                       mark->stamp.device == work.found.device && mark->stamp.inode == work.found.inode;
  const bool ours = changed || (work.target != nullptr && work.found == work.fixed.ours);
  if (!ours && work.found != work.fixed.backing)
    work.how = How::kAside;
  else if (work.target != nullptr && work.fixed.backing_end > 0)
    work.how = How::kInPlace;
  return {};
}

Status Drain::plan(Work& work) {
  const uint64_t kept = work.how == How::kAside ? std::min(work.fixed.backing_end, work.found.size) : 0;
  uint64_t at = 0;
  const auto add_hole = [&](uint64_t end) {
    end = std::min(end, kept);
    if (at < end) work.parts.push_back({at, end - at, {}});
  };
  for (const FileExtents::Piece& piece : work.fixed.pieces) {
    add_hole(piece.offset);
    work.parts.push_back({piece.offset, piece.length, piece});
    at = piece.offset + piece.length;
  }
  add_hole(work.fixed.size);
  return {};
}

Status Drain::open_out(Work& work) {
  if (work.how != How::kInPlace) {
    const std::string path = own_path(kNewPrefix, work.file);
    // A drain that was killed may have left it, also as a second name of the file that it became.
    const Status removed = backing_.device().remove(path);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
    SWALE_ASSIGN_OR_RETURN(work.out, backing_.device().open(path, io::OpenMode::kCreate));
    return {};
  }
  SWALE_RETURN_IF_ERROR(put_mark(work, work.path, work.found));
  SWALE_ASSIGN_OR_RETURN(work.out, backing_.device().open(work.path, io::OpenMode::kReadWrite));
  SWALE_ASSIGN_OR_RETURN(const Stamp now, backing_.stamp(*work.out));
  if (now != work.found)
    return error(Code::kBusy, Scope::kFile, "{}: others change it while it is drained; drain it again",
                 work.path);
  // What a truncate has cut off must not come back where the file was made longer again.
  if (work.found.size > work.fixed.backing_end) return work.out->truncate(work.fixed.backing_end);
  return {};
}

Result<bool> Drain::write_some() noexcept {
  return step([&]() -> Result<bool> {
    Work& work = *work_;
    if (work.next == work.parts.size()) return false;
    const MutableBytes buffer = buffer_.span();
    const uint64_t begin = work.parts[work.next].offset + work.done;
    size_t filled = 0;
    while (filled < buffer.size() && work.next < work.parts.size()) {
      const Part& part = work.parts[work.next];
      if (part.offset + work.done != begin + filled) break;
      const auto bytes =
          buffer.subspan(filled, std::min<uint64_t>(part.length - work.done, buffer.size() - filled));
      if (part.piece)
        SWALE_RETURN_IF_ERROR(files_.read_piece(*part.piece, work.done, bytes));
      else
        SWALE_RETURN_IF_ERROR(read_exactly(*work.target, begin + filled, bytes));
      filled += bytes.size();
      work.done += bytes.size();
      if (work.done == part.length) ++work.next, work.done = 0;
    }
    SWALE_RETURN_IF_ERROR(put(work, begin, buffer.first(filled)));
    return work.next < work.parts.size();
  });
}

// Writes bytes of the logs, and reads them again; the buffer is theirs.
Status Drain::put(Work& work, uint64_t offset, MutableBytes bytes) {
  const uint32_t crc = crc32c(view(bytes));
  SWALE_RETURN_IF_ERROR(work.out->pwrite(offset, view(bytes)));
  if (options_.rules.check) {
    SWALE_RETURN_IF_ERROR(read_exactly(*work.out, offset, bytes));
    if (crc32c(view(bytes)) != crc)
      return corruption(
          "{}: offset {}: {} bytes have another checksum than those that were committed; the logs keep them: "
          "check the disk, and drain again",
          work.out->path(), offset, bytes.size());
  }
  // A range that is not next to the one before begins anew: the disk gets that at the sync.
  if (offset != work.unsent_end) work.unsent = offset;
  work.unsent_end = offset + bytes.size();
  if (work.unsent_end - work.unsent >= kWritebackBytes) {
    start_writeback(*work.out, work.unsent, work.unsent_end - work.unsent);
    work.unsent = work.unsent_end;
  }
  return {};
}

Status Drain::check_size(Work& work) {
  if (!options_.rules.check) return {};
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, work.out->size());
  if (size != work.fixed.size)
    return corruption(
        "{}: it has {} bytes, and {} were committed; the logs keep them: check the disk, and "
        "drain again",
        work.out->path(), size, work.fixed.size);
  return {};
}

Status Drain::settle(Work& work) {
  if (work.next < work.parts.size())
    return error(Code::kInternal, Scope::kOperation, "{}: not all is written", work.path);
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, work.out->size());
  if (size != work.fixed.size) SWALE_RETURN_IF_ERROR(work.out->truncate(work.fixed.size));
  io::File* const replaced = work.how == How::kInPlace ? nullptr : work.target.get();
  SWALE_RETURN_IF_ERROR(backing_.dress(work.file, *work.out, replaced));
  if (options_.rules.sync) SWALE_RETURN_IF_ERROR(work.out->sync());
  SWALE_RETURN_IF_ERROR(check_size(work));
  work.settled = true;
  return {};
}

Status Drain::settle() noexcept {
  if (!work_) return Status(Code::kInternal, Scope::kOperation, "no drain has begun");
  return contain([&] { return settle(*work_); });
}

Status Drain::announce() noexcept {
  if (!work_) return Status(Code::kInternal, Scope::kOperation, "no drain has begun");
  return contain([&] { return announce(*work_); });
}

Status Drain::publish() noexcept {
  if (!work_) return Status(Code::kInternal, Scope::kOperation, "no drain has begun");
  return contain([&] { return publish(*work_); });
}

Result<Drain::Outcome> Drain::finish() noexcept {
  return step([&]() -> Result<Outcome> {
    Work& work = *work_;
    if (!work.published) SWALE_RETURN_IF_ERROR(publish(work));
    const meta::FileId file = work.file;
    if (work.nameless) {
      abandon();
      SWALE_RETURN_IF_ERROR(remove_mark(file));
      return Outcome::kNothing;
    }
    const Outcome outcome = work.how == How::kAside ? Outcome::kKeptAside : Outcome::kDone;
    unmarked_.insert(file);
    const Status drained = files_.drained(file, work.fixed, work.now);
    if (!drained.ok()) unmarked_.erase(file);
    SWALE_RETURN_IF_ERROR(drained);
    const How how = work.how;
    work_.reset();
    SWALE_RETURN_IF_ERROR(unmark(file, how));
    return outcome;
  });
}

Status Drain::expect_unchanged(const Work& work) {
  SWALE_ASSIGN_OR_RETURN(const auto now, open_if_there(work.path, io::OpenMode::kRead));
  Stamp stamp;
  if (now) {
    SWALE_ASSIGN_OR_RETURN(stamp, backing_.stamp(*now));
  }
  if (stamp == work.found) return {};
  return error(Code::kAlreadyExists, Scope::kFile, "{}: others have changed it", work.path);
}

// A server that follows this one knows the new file by its row.
Status Drain::announce(Work& work) {
  if (!work.settled) SWALE_RETURN_IF_ERROR(settle(work));
  if (work.how == How::kWhole && options_.rules.mark) {
    SWALE_ASSIGN_OR_RETURN(const Stamp ours, backing_.stamp(*work.out));
    SWALE_RETURN_IF_ERROR(files_.announce(work.file, ours));
  }
  work.announced = true;
  return {};
}

Status Drain::publish(Work& work) {
  if (!work.announced) SWALE_RETURN_IF_ERROR(announce(work));
  const auto path = backing_.path_of(work.file);
  work.nameless = has_no_name(path.status());
  if (work.nameless) {
    work.published = true;
    return {};
  }
  SWALE_RETURN_IF_ERROR(path.status());
  if (*path != work.path)
    return error(Code::kBusy, Scope::kFile, "{}: it became {} while it was drained; drain it again",
                 work.path, *path);
  if (work.how == How::kWhole) SWALE_RETURN_IF_ERROR(publish_whole(work));
  if (work.how != How::kAside) {
    SWALE_ASSIGN_OR_RETURN(work.now, backing_.stamp(*work.out));
  } else {
    SWALE_RETURN_IF_ERROR(publish_aside(work));
    SWALE_ASSIGN_OR_RETURN(const auto theirs, open_if_there(work.path, io::OpenMode::kRead));
    if (theirs) {
      SWALE_ASSIGN_OR_RETURN(work.now, backing_.stamp(*theirs));
    }
  }
  work.published = true;
  return {};
}

// Where others have put something meanwhile, it is to be kept aside.
Status Drain::publish_whole(Work& work) {
  Status renamed = expect_unchanged(work);
  if (renamed.ok())
    renamed = work.target ? backing_.device().rename(work.out->path(), work.path)
                          : backing_.device().rename_new(work.out->path(), work.path);
  if (renamed.code() == Code::kAlreadyExists) {
    work.how = How::kAside;
    return {};
  }
  SWALE_RETURN_IF_ERROR(renamed);
  return options_.rules.sync ? backing_.device().sync_directory(io::parent_directory(work.path)) : Status();
}

// A copy that a drain has made which was killed then is replaced.
Status Drain::publish_aside(Work& work) {
  SWALE_ASSIGN_OR_RETURN(const Stamp ours, backing_.stamp(*work.out));
  SWALE_ASSIGN_OR_RETURN(const auto mark, mark_of(work.file));
  std::string path;
  if (mark && mark->how == How::kAside) {
    const std::string before = backing_.root() + "/" + mark->path;
    SWALE_ASSIGN_OR_RETURN(const auto there, open_if_there(before, io::OpenMode::kRead));
    if (there) {
      SWALE_ASSIGN_OR_RETURN(const Stamp stamp, backing_.stamp(*there));
      if (stamp == mark->stamp) path = before;
    }
  }
  if (!path.empty()) {
    SWALE_RETURN_IF_ERROR(put_mark(work, path, ours));
    SWALE_RETURN_IF_ERROR(backing_.device().rename(work.out->path(), path));
  } else {
    Status renamed;
    for (int i = 1; i <= kAsideMax; ++i) {
      path = work.path + ".swale-" + options_.job + (i == 1 ? "" : fmt::format("-{}", i));
      SWALE_RETURN_IF_ERROR(put_mark(work, path, ours));
      renamed = backing_.device().rename_new(work.out->path(), path);
      if (renamed.code() != Code::kAlreadyExists) break;
    }
    SWALE_RETURN_IF_ERROR(renamed);
  }
  SWALE_RETURN_IF_ERROR(backing_.device().sync_directory(io::parent_directory(path)));
  log_error(
      "{}: others have changed this file since the job began to write it; it is kept, and what the job "
      "has written is in {}: compare them, and remove one",
      work.path, path);
  aside_.push_back(path);
  return {};
}

void Drain::abandon() noexcept {
  if (!work_) return;
  files_.give_up(work_->file);
  if (work_->out && work_->how != How::kInPlace)
    static_cast<void>(contain([&] { return backing_.device().remove(own_path(kNewPrefix, work_->file)); }));
  work_.reset();
}

Result<Drain::Outcome> Drain::file(const meta::FileId& id) noexcept {
  SWALE_ASSIGN_OR_RETURN(const bool begun, begin(id));
  if (!begun) return Outcome::kNothing;
  for (bool more = true; more;) {
    SWALE_ASSIGN_OR_RETURN(more, write_some());
  }
  return finish();
}

Status Drain::all() noexcept {
  return contain([&]() -> Status {
    Status first = files_.take();
    for (const meta::FileId& id : files_.undrained()) {
      const Status drained = file(id).status();
      if (first.ok() && !drained.ok()) first = drained;
    }
    return first;
  });
}

Status Drain::make_space() noexcept {
  return contain([&]() -> Status {
    std::set<meta::FileId> tried;
    Status first = files_.serve();
    if (!files_.logs().starves()) return first;
    while (files_.logs().starves()) {
      const auto id = files_.oldest(tried);
      if (!id) break;
      tried.insert(*id);
      Status drained = file(*id).status();
      if (drained.code() == Code::kNoSpace) {
        files_.logs().refuse(drained.posix_error());
        return drained;
      }
      if (drained.ok()) drained = files_.serve();
      if (first.ok() && !drained.ok()) first = drained;
    }
    return files_.logs().starves() ? first : Status();
  });
}

}  // namespace swale::fs
