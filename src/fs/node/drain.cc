#include "fs/node/drain.h"

#include <algorithm>

#include "base/contain.h"
#include "base/log.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr size_t kBufferBytes = 256 * kKiB;     // stays in the processor's cache: written, and read again
constexpr uint64_t kWritebackBytes = 8 * kMiB;  // handed to the disk at once

using How = DrainMark::How;

// Each name of the path below the root is one, and it is none of ours.
Status expect_beneath(const std::string& path, const std::string& root) {
  bool good = path.starts_with(root + "/");
  const std::string_view rest = good ? std::string_view(path).substr(root.size() + 1) : "";
  if (rest == kSwaleDirectory || rest.starts_with(std::string(kSwaleDirectory) + "/")) good = false;
  if (good && is_of_names(rest)) return {};
  return invalid_argument("{}: it is no path of a file beneath {}", path, root);
}

}  // namespace

Result<std::unique_ptr<Drain>> Drain::open(NodeFiles& files, Backing& backing, const DrainOptions& options,
                                           DrainSource* source) noexcept {
  std::unique_ptr<Drain> drain;
  const Status status = contain([&]() -> Status {
    if (!io::is_one_name(options.job))
      return invalid_argument("'{}': the name of a job must be one that a file can have", options.job);
    drain.reset(new Drain(files, backing, options, source));
    SWALE_RETURN_IF_ERROR(drain->prepare());
    return source != nullptr ? Status() : drain->resume();
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
  std::vector<meta::FileId> marked;
  for (const std::string& name : names)
    if (const auto file = marked_file(kMarkPrefix, name)) marked.push_back(*file);
  const Status resumed = drain_all(marked, kBatchBytes);
  if (!resumed.ok()) log_warn("{}; its drain goes on later", resumed.message());
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

Result<size_t> Drain::begin(std::span<const meta::FileId> files, uint64_t bytes_limit) noexcept {
  if (step_ != Step::kNone) return Status(Code::kBusy, Scope::kOperation, "other files are being drained");
  const Status begun = contain([&] {
    const size_t most = std::min(files.size(), kFilesMax);
    drained_.clear();
    drained_.reserve(most);
    batch_.reserve(most);
    uint64_t bytes = 0;
    while (batch_.size() < most && bytes < bytes_limit) {
      batch_.push_back(std::make_unique<Work>());
      Work& work = *batch_.back();
      work.file = files[batch_.size() - 1];
      work.status = contain([&] { return take_up(work); });
      for (const FileExtents::Piece& piece : work.fixed.pieces) bytes += piece.length;
    }
  });
  const size_t count = batch_.size();
  step_ = Step::kBegun;
  if (begun.ok()) return count;
  give_up(begun);
  static_cast<void>(finish());
  return begun;
}

Status Drain::take_up(Work& work) {
  auto fixed = source_.fix(work.file);
  if (fixed.status().code() == Code::kNotFound) {
    work.over = work.stale_mark = true;
    return {};
  }
  SWALE_RETURN_IF_ERROR(fixed.status());
  work.fixed = std::move(*fixed);
  work.is_fixed = true;
  const auto path = backing_.path_of(work.file);
  if (has_no_name(path.status())) {
    work.over = work.stale_mark = true;
    return {};
  }
  SWALE_RETURN_IF_ERROR(path.status());
  work.path = *path;
  // A mark says that we have changed the file; after a drain it would cover what others do.
  work.stale_mark = unmarked_.contains(work.file);
  return expect_beneath(work.path, backing_.root());
}

void Drain::look() noexcept {
  if (step_ != Step::kBegun) return;
  step_ = Step::kLooked;
  for (const auto& work : batch_)
    if (work->status.ok() && work->stale_mark)
      work->status = contain([&] { return remove_stale_mark(*work); });
  each([&](Work& work) -> Status {
    SWALE_RETURN_IF_ERROR(look(work));
    return plan(work);
  });
  mark_in_place();
  open_outs();
  at_ = 0;
}

Status Drain::remove_stale_mark(Work& work) {
  SWALE_RETURN_IF_ERROR(remove_mark(work.file));
  unmarked_.erase(work.file);
  return {};
}

// Is the file with that name what it was when this node began to write it, or what a drain of ours that was
// killed has made of it? (The name may have moved since begin(): then publish() finds that out.)
Status Drain::look(Work& work) {
  SWALE_ASSIGN_OR_RETURN(work.target, open_if_there(work.path, io::OpenMode::kRead));
  if (work.target) {
    SWALE_ASSIGN_OR_RETURN(work.found, backing_.stamp(*work.target));
  }
  SWALE_ASSIGN_OR_RETURN(const auto mark, mark_of(work.file));
  // One that is changed in place may have been renamed since.
  const bool changed = mark && mark->how == How::kInPlace && work.target != nullptr &&
                       mark->stamp.device == work.found.device && mark->stamp.inode == work.found.inode;
  const bool ours = changed || (work.target != nullptr && is_as_seen(work.fixed.ours, work.found));
  if (!ours && !is_as_seen(work.fixed.backing, work.found))
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

void Drain::open_outs() noexcept {
  each([&](Work& work) { return work.how == How::kInPlace ? open_in_place(work) : open_new(work); });
}

Status Drain::open_new(Work& work) {
  const std::string path = own_path(kNewPrefix, work.file);
  // A drain that was killed may have left it, also as a second name of the file that it became.
  const Status removed = backing_.device().remove(path);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  SWALE_ASSIGN_OR_RETURN(work.out, backing_.device().open(path, io::OpenMode::kCreate));
  return {};
}

Status Drain::open_in_place(Work& work) {
  SWALE_ASSIGN_OR_RETURN(work.out, backing_.device().open(work.path, io::OpenMode::kReadWrite));
  SWALE_ASSIGN_OR_RETURN(const Stamp now, backing_.stamp(*work.out));
  if (now != work.found)
    return error(Code::kBusy, Scope::kFile, "{}: others change it while it is drained; drain it again",
                 work.path);
  // What a truncate has cut off must not come back where the file was made longer again.
  if (work.found.size > work.fixed.backing_end) return work.out->truncate(work.fixed.backing_end);
  return {};
}

bool Drain::fill() noexcept {
  look();
  if (filled_ != nullptr) put();
  for (; at_ < batch_.size(); ++at_) {
    Work& work = *batch_[at_];
    if (!work.goes_on() || work.next == work.parts.size()) continue;
    work.status = contain([&] { return fill(work); });
    if (work.status.ok()) return true;
  }
  return false;
}

Status Drain::fill(Work& work) {
  const uint64_t begin = work.parts[work.next].offset + work.done;
  const MutableBytes buffer = buffer_.span().first(buffer_.span().size() - begin % kHoleBytes);
  const bool kept = !work.parts[work.next].piece;
  size_t filled = 0;
  while (filled < buffer.size() && work.next < work.parts.size()) {
    const Part& part = work.parts[work.next];
    if (part.offset + work.done != begin + filled || kept == part.piece.has_value()) break;
    const auto bytes =
        buffer.subspan(filled, std::min<uint64_t>(part.length - work.done, buffer.size() - filled));
    if (part.piece) SWALE_RETURN_IF_ERROR(source_.read_piece(*part.piece, work.done, bytes));
    filled += bytes.size();
    work.done += bytes.size();
    if (work.done == part.length) ++work.next, work.done = 0;
  }
  filled_ = &work;
  filled_offset_ = begin, filled_bytes_ = filled;
  filled_is_kept_ = kept;
  return {};
}

void Drain::put() noexcept {
  if (filled_ == nullptr) return;
  Work& work = *filled_;
  filled_ = nullptr;
  if (!work.goes_on()) return;
  work.status = contain([&] { return put(work, filled_offset_, buffer_.span().first(filled_bytes_)); });
}

// Writes bytes of the logs, and reads them again; the buffer is theirs.
Status Drain::put(Work& work, uint64_t offset, MutableBytes bytes) {
  if (filled_is_kept_) SWALE_RETURN_IF_ERROR(read_exactly(*work.target, offset, bytes));
  SWALE_RETURN_IF_ERROR(options_.rules.check ? write_checked(*work.out, offset, bytes)
                                             : work.out->pwrite(offset, view(bytes)));
  // The disk writes it while the next bytes are copied: a sync then waits for less.
  if (work.unsent_bytes == 0) work.unsent = offset;
  work.unsent_bytes += bytes.size();
  const uint64_t end = offset + bytes.size();
  if (work.unsent_bytes >= kWritebackBytes || work.next == work.parts.size()) {
    start_writeback(*work.out, work.unsent, end - work.unsent);
    work.unsent_bytes = 0;
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

void Drain::settle() noexcept {
  look();
  if (step_ != Step::kLooked) return;
  step_ = Step::kSettled;
  each([&](Work& work) -> Status {
    if (work.next < work.parts.size() || filled_ == &work)
      return error(Code::kInternal, Scope::kOperation, "{}: not all is written", work.path);
    SWALE_RETURN_IF_ERROR(source_.write_others(work.file, *work.out));
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, work.out->size());
    if (size != work.fixed.size) SWALE_RETURN_IF_ERROR(work.out->truncate(work.fixed.size));
    io::File* const replaced = work.how == How::kInPlace ? nullptr : work.target.get();
    return backing_.dress(work.file, *work.out, replaced);
  });
  sync_outs([](const Work&) { return true; });
  each([&](Work& work) -> Status {
    SWALE_RETURN_IF_ERROR(check_size(work));
    SWALE_ASSIGN_OR_RETURN(work.now, backing_.stamp(*work.out));
    return {};
  });
}

void Drain::sync_outs(const std::function<bool(const Work&)>& which) noexcept {
  if (!options_.rules.sync) return;
  const Status synced = contain([&] {
    std::vector<std::pair<io::File*, Status*>> files;
    for (const auto& work : batch_)
      if (work->goes_on() && which(*work)) files.emplace_back(work->out.get(), &work->status);
    syncs_.sync(files);
  });
  if (!synced.ok()) each([&](Work&) { return synced; });
}

void Drain::dress_again() noexcept {
  settle();
  if (step_ != Step::kSettled) return;
  std::set<const Work*> changed;
  each([&](Work& work) -> Status {
    SWALE_ASSIGN_OR_RETURN(const bool again, backing_.dress_again(work.file, *work.out));
    if (again) changed.insert(&work);
    return {};
  });
  sync_outs([&](const Work& work) { return changed.contains(&work); });
  each([&](Work& work) -> Status {
    if (!changed.contains(&work)) return {};
    SWALE_ASSIGN_OR_RETURN(work.now, backing_.stamp(*work.out));
    return {};
  });
}

void Drain::record() noexcept {
  publish();
  if (step_ != Step::kNamed) return;
  Status recorded = contain([&] { return record_drained(); });
  if (!recorded.ok())
    each([&](Work& work) {
      unmarked_.erase(work.file);
      return recorded;
    });
  give_up({});
}

void Drain::give_up(const Status& why) noexcept {
  if (step_ == Step::kNone) return;
  if (!why.ok()) each([&](Work&) { return why; });
  for (const auto& work : batch_)
    if (work->is_fixed && !work->recorded) source_.give_up(work->file);
  step_ = Step::kRecorded;
}

std::vector<Drain::Drained> Drain::finish() noexcept {
  record();
  unmark();
  for (const auto& work : batch_) {
    const bool aside = work->how == How::kAside;
    const Outcome outcome = work->over ? Outcome::kNothing : aside ? Outcome::kKeptAside : Outcome::kDone;
    if (work->status.ok())
      drained_.push_back({work->file, outcome});
    else
      drained_.push_back({work->file, work->status});
    if (!work->recorded && work->out && work->how != How::kInPlace)
      static_cast<void>(contain([&] { return backing_.device().remove(own_path(kNewPrefix, work->file)); }));
  }
  batch_.clear();
  filled_ = nullptr;
  step_ = Step::kNone;
  return std::move(drained_);
}

Status Drain::record_drained() {
  std::vector<DrainSource::Done> drained;
  for (const auto& work : batch_) {
    if (!work->goes_on()) continue;
    unmarked_.insert(work->file);
    drained.push_back({work->file, &work->fixed, work->now, work->how == How::kAside, work->there});
  }
  if (drained.empty()) return {};
  SWALE_RETURN_IF_ERROR(source_.drained(drained));
  for (const auto& work : batch_) work->recorded = work->goes_on();
  return {};
}

Result<Drain::Outcome> Drain::file(const meta::FileId& id) noexcept {
  SWALE_RETURN_IF_ERROR(begin({&id, 1}).status());
  while (fill()) put();
  return std::move(finish().front().outcome);
}

// The first failure, after all were tried.
Status Drain::drain_all(std::span<const meta::FileId> files, uint64_t bytes_limit) {
  Status first;
  while (!files.empty()) {
    SWALE_ASSIGN_OR_RETURN(const size_t count, begin(files, bytes_limit));
    while (fill()) put();
    for (const Drained& each : finish())
      if (first.ok()) first = each.outcome.status();
    files = files.subspan(count);
  }
  return first;
}

Status Drain::all() noexcept {
  return contain([&]() -> Status {
    const Status taken = files_.take();
    const Status drained = drain_all(files_.undrained(), kBatchBytes);
    return taken.ok() ? drained : taken;
  });
}

Status Drain::make_space() noexcept {
  return contain([&]() -> Status {
    std::set<meta::FileId> tried;
    Status first = files_.serve();
    if (!files_.logs().starves()) return first;
    while (files_.logs().starves()) {
      const auto files = files_.oldest(kFilesMax, tried);
      if (files.empty()) break;
      SWALE_ASSIGN_OR_RETURN(const size_t count, begin(files, kSpaceBytes));
      while (fill()) put();
      tried.insert(files.begin(), files.begin() + static_cast<ptrdiff_t>(count));
      for (const Drained& each : finish()) {
        const Status drained = each.outcome.status();
        if (first.ok()) first = drained;
        if (drained.code() != Code::kNoSpace) continue;
        files_.logs().refuse(drained.posix_error());
        return drained;
      }
      const Status served = files_.serve();
      if (first.ok()) first = served;
    }
    return files_.logs().starves() ? first : Status();
  });
}

}  // namespace swale::fs
