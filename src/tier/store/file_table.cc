#include "tier/store/file_table.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace swale::tier {
namespace {

constexpr uint64_t kLongBytes = uint64_t{1} << 20;

}  // namespace

std::string file_table_path(const std::string& ssd_directory) { return ssd_directory + "/files"; }

void FileTable::make(const std::vector<FileEntry>& entries) {
  const MutexLock writes(writing_);
  {
    const MutexLock lock(mutex_);
    known_.clear();
    for (const FileEntry& entry : entries) known_[entry.file] = {entry, kOpen};
  }
  tell(write_anew());
}

Status FileTable::write_anew() {
  std::vector<FileEntry> entries;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, known] : known_) entries.push_back(known.entry);
  }
  const std::string bytes = encode_file_table(entries, log_id_);
  {
    const MutexLock lock(mutex_);  // a failure is not tried again at once
    long_from_ = std::max(kLongBytes, 2 * std::max<uint64_t>(end_, bytes.size()));
  }
  SWALE_RETURN_IF_ERROR(io::replace_file(device_, path_, bytes));
  auto file = device_.open(path_, io::OpenMode::kReadWrite);
  const MutexLock lock(mutex_);
  // What the file was has no name any more.
  file_ = file.ok() ? std::shared_ptr<io::File>(std::move(*file)) : nullptr;
  end_ = bytes.size();
  unsynced_ = false;
  return file.status();
}

// Once: whoever looks after the SSD knows, and nothing is lost by it.
void FileTable::tell(const Status& status) {
  if (status.ok()) return;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(told_, true)) return;
  }
  log_warn(
      "{}: the table of files cannot be written: {}; after a kill, a file is found by its id only, and "
      "bytes of a file that is not found are kept aside",
      path_, status.message());
}

void FileTable::append(const FileEntry& entry) {
  std::shared_ptr<io::File> file;
  uint64_t at = 0;
  {
    const MutexLock lock(mutex_);
    file = file_;
    at = end_;
    unsynced_ = true;
  }
  if (!file) return;  // it was told
  const std::string bytes = encode_file_entry(entry, log_id_, at);
  const Status written = file->pwrite(at, bytes);
  tell(written);
  const MutexLock lock(mutex_);
  unsynced_ = true;
  if (written.ok()) end_ = at + bytes.size();  // else the next one replaces what there is of it
}

void FileTable::add(uint64_t id, FileIdentity identity) {
  const MutexLock writes(writing_);
  const FileEntry entry{FileEntryKind::kFile, id, std::move(identity)};
  {
    const MutexLock lock(mutex_);
    const auto [known, fresh] = known_.try_emplace(id);
    known->second.until = kOpen;
    if (!fresh && known->second.entry == entry) return;
    known->second.entry = entry;
  }
  append(entry);
}

bool FileTable::is_of_another(uint64_t id, const FileIdentity& identity) const {
  const MutexLock lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end()) return false;
  const FileIdentity& known = found->second.entry.identity;
  return known.inode != identity.inode || known.born_ns != identity.born_ns ||
         found->second.entry.kind != FileEntryKind::kFile;
}

bool FileTable::add_removed(uint64_t id) {
  const MutexLock writes(writing_);
  FileEntry entry;
  {
    const MutexLock lock(mutex_);
    const auto found = known_.find(id);
    if (found == known_.end() || found->second.entry.kind != FileEntryKind::kFile) return false;
    found->second.entry.kind = FileEntryKind::kRemoved;
    entry = found->second.entry;
  }
  append(entry);
  return true;
}

void FileTable::closed(uint64_t id, uint64_t newest) {
  const MutexLock lock(mutex_);
  if (const auto found = known_.find(id); found != known_.end()) found->second.until = newest;
}

std::shared_ptr<io::File> FileTable::begin_sync() {
  const MutexLock lock(mutex_);
  return std::exchange(unsynced_, false) ? file_ : nullptr;
}

void FileTable::synced(const Status& status) { tell(status); }

Status FileTable::sync() {
  const auto file = begin_sync();
  const Status status = file ? file->sync() : Status();
  synced(status);
  return status;
}

bool FileTable::is_long() const {
  const MutexLock lock(mutex_);
  return end_ > long_from_;
}

void FileTable::shorten(uint64_t oldest) {
  const MutexLock writes(writing_);
  {
    const MutexLock lock(mutex_);
    std::erase_if(known_, [&](const auto& each) { return each.second.until < oldest; });
  }
  tell(write_anew());
}

}  // namespace swale::tier
