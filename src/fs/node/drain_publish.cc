// Drain: marks, and how files get their names.
#include "base/contain.h"
#include "base/log.h"
#include "fs/node/drain.h"

namespace swale::fs {
namespace {

constexpr size_t kMarkBytesMax = 64 * kKiB;
constexpr int kAsideMax = 100;  // files of one name that are kept aside
constexpr char kUnfinished[] = ".unfinished";

using How = DrainMark::How;

}  // namespace

Result<std::optional<DrainMark>> Drain::mark_of(const meta::FileId& file) {
  const std::string path = own_path(kMarkPrefix, file);
  const auto text = io::read_file(*private_, path, kMarkBytesMax);
  if (text.status().code() == Code::kNotFound) return std::optional<DrainMark>();
  SWALE_RETURN_IF_ERROR(text.status());
  SWALE_ASSIGN_OR_RETURN(DrainMark mark, decode_mark(*text, path));
  return std::optional<DrainMark>(std::move(mark));
}

std::string Drain::mark_text(const Work& work, const std::string& path, const Stamp& stamp) const {
  return encode_mark({work.how, path.substr(backing_.root().size() + 1), stamp});
}

Status Drain::put_mark(const Work& work, const std::string& path, const Stamp& stamp) {
  if (!options_.rules.mark) return {};
  return io::replace_file(*private_, own_path(kMarkPrefix, work.file), mark_text(work, path, stamp));
}

// As put_mark, of all files that will be changed in place: durable before any of them changes.
void Drain::mark_in_place() noexcept {
  if (!options_.rules.mark) return;
  std::vector<std::pair<Work*, std::unique_ptr<io::File>>> marks;
  each([&](Work& work) -> Status {
    if (work.how != How::kInPlace) return {};
    const std::string path = own_path(kMarkPrefix, work.file) + kUnfinished;
    SWALE_ASSIGN_OR_RETURN(auto mark, private_->open(path, io::OpenMode::kOpenOrCreate));
    SWALE_RETURN_IF_ERROR(mark->truncate(0));
    SWALE_RETURN_IF_ERROR(mark->pwrite(0, mark_text(work, work.path, work.found)));
    marks.emplace_back(&work, std::move(mark));
    return {};
  });
  if (marks.empty()) return;
  const Status marked = contain([&]() -> Status {
    std::vector<std::pair<io::File*, Status*>> files;
    for (const auto& [work, mark] : marks) files.emplace_back(mark.get(), &work->status);
    syncs_.sync(files);
    for (const auto& [work, mark] : marks)
      if (work->goes_on()) work->status = private_->rename(mark->path(), own_path(kMarkPrefix, work->file));
    return private_->sync_directory(folder_);
  });
  if (marked.ok()) return;
  for (const auto& [work, mark] : marks)
    if (work->goes_on()) work->status = marked;
}

Status Drain::remove_mark(const meta::FileId& file) {
  const Status removed = private_->remove(own_path(kMarkPrefix, file));
  if (removed.code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(removed);
  return private_->sync_directory(folder_);
}

// A mark of a copy aside fits that file alone, as it was: if a power loss brings it back, it still says what
// is true. One of a file changed in place would cover what others do.
void Drain::unmark() noexcept {
  bool in_place = false;
  each([&](Work& work) -> Status {
    const Status removed = private_->remove(own_path(kMarkPrefix, work.file));
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
    in_place = in_place || work.how == How::kInPlace;
    if (work.how != How::kInPlace) unmarked_.erase(work.file);
    return {};
  });
  if (!in_place) return;
  const Status synced = contain([&] { return private_->sync_directory(folder_); });
  each([&](Work& work) -> Status {
    if (work.how != How::kInPlace) return {};
    if (synced.ok()) unmarked_.erase(work.file);
    return synced;
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

// A server that follows this one knows the new files by their rows.
void Drain::announce() noexcept {
  settle();
  if (step_ != Step::kSettled) return;
  step_ = Step::kAnnounced;
  if (!options_.rules.mark) return;
  std::vector<std::pair<meta::FileId, Stamp>> ours;
  each([&](Work& work) -> Status {
    if (work.how != How::kWhole) return {};
    ours.emplace_back(work.file, work.now);
    return {};
  });
  if (ours.empty()) return;
  const Status announced = source_.announce(ours);
  each([&](Work& work) { return work.how == How::kWhole ? announced : Status(); });
}

void Drain::publish() noexcept {
  announce();
  if (step_ != Step::kAnnounced) return;
  step_ = Step::kNamed;
  each([&](Work& work) { return publish(work); });
  if (options_.rules.sync_names) sync_new_names();
}

Status Drain::publish(Work& work) {
  const auto path = backing_.path_of(work.file);
  if (has_no_name(path.status())) {
    work.over = true;
    return remove_mark(work.file);
  }
  SWALE_RETURN_IF_ERROR(path.status());
  if (*path != work.path)
    return error(Code::kBusy, Scope::kFile, "{}: it became {} while it was drained; drain it again",
                 work.path, *path);
  if (work.how == How::kWhole) SWALE_RETURN_IF_ERROR(publish_whole(work));
  SWALE_RETURN_IF_ERROR(see_there(work));
  return work.how == How::kAside ? publish_aside(work) : Status();
}

// What has the name. One that look() did not find there may have been renamed just then, and back.
Status Drain::see_there(Work& work) {
  const bool ours = work.how != How::kAside;
  work.there = ours ? work.out : nullptr;
  if (!ours || work.fixed.is_open) {
    auto there = open_if_there(work.path, io::OpenMode::kRead);
    if (!ours) SWALE_RETURN_IF_ERROR(there.status());
    if (there.ok() && *there) work.there = std::move(*there);
  }
  work.now = {};
  if (work.there) {
    SWALE_ASSIGN_OR_RETURN(work.now, backing_.stamp(ours ? *work.out : *work.there));
  }
  if (!ours && work.there && is_as_seen(work.fixed.backing, work.now))
    return error(Code::kBusy, Scope::kFile, "{}: it was renamed while it was drained; drain it again",
                 work.path);
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
  return renamed;
}

// A directory once, of however many files.
void Drain::sync_new_names() noexcept {
  std::set<std::string> directories;
  each([&](Work& work) {
    if (work.how == How::kWhole) directories.insert(io::parent_directory(work.path));
    return Status();
  });
  for (const std::string& directory : directories) {
    const Status synced = contain([&] { return backing_.device().sync_directory(directory); });
    if (synced.ok()) continue;
    each([&](Work& work) {
      return work.how == How::kWhole && io::parent_directory(work.path) == directory ? synced : Status();
    });
  }
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

}  // namespace swale::fs
