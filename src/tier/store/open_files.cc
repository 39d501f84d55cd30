#include "tier/store/open_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

namespace swale::tier {
namespace {

int64_t file_nanos(const timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

// The clock of file times: as exact as the kernel's own.
int64_t file_time() {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &time);
  return file_nanos(time);
}

}  // namespace

Result<BackingState> state_of(io::File& file) {
  struct stat found;
  if (::fstat(file.descriptor(), &found) != 0) return errno_status(errno, file.path() + ": stat");
  return BackingState{
      {found.st_dev, found.st_ino},
      {static_cast<uint64_t>(found.st_size), file_nanos(found.st_mtim), file_nanos(found.st_ctim)},
      found.st_nlink == 0};
}

OpenFile& OpenFiles::add(FileIndex index, std::unique_ptr<io::File> file, const BackingState& state,
                         uint64_t id) {
  assert(!is_open(index) && file);
  if (index >= files_.size()) files_.resize(index + 1);
  OpenFile& added = files_[index] = {};
  added.file = std::move(file);
  added.key = state.key;
  added.id = id;
  added.unlinked = state.unlinked;
  added.view = state.view;
  by_key_[state.key] = index;
  by_id_[id] = index;
  return added;
}

std::unique_ptr<io::File> OpenFiles::remove(FileIndex index) {
  OpenFile& removed = files_[index];
  assert(removed.file && removed.references == 0 && removed.in_use == 0);
  by_key_.erase(removed.key);
  by_id_.erase(removed.id);
  if (removed.waits) std::erase(waiting_, index);
  auto file = std::move(removed.file);
  removed = {};
  return file;
}

std::optional<FileIndex> OpenFiles::find(const FileKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

void OpenFiles::modify(FileIndex index) {
  FileView& view = files_[index].view;
  view.modified_ns = view.changed_ns = file_time();
  files_[index].times_unsaved = true;
}

void OpenFiles::set_modified(FileIndex index, int64_t modified_ns) {
  FileView& view = files_[index].view;
  view.modified_ns = modified_ns;
  view.changed_ns = file_time();
  files_[index].times_unsaved = true;
}

void OpenFiles::wait(FileIndex index) {
  assert(is_open(index));
  if (!std::exchange(files_[index].waits, true)) waiting_.push_back(index);
}

std::string OpenFiles::name_of(FileIndex index) const {
  if (!is_open(index)) return {};
  const io::File& file = *files_[index].file;
  std::error_code failed;
  const auto path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file.descriptor()), failed);
  return failed ? file.path() : path.string();
}

}  // namespace swale::tier
