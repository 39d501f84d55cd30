// FileTable: the table of files of an SSD directory (tier/log/file_table_format.h) while a store is open: a
// file has its entry before it has a record in the log, and a removal its entry before its records are
// forgotten.
//
// Durable: sync() before the log is synced. A table that cannot be written costs no bytes, and fails no call:
// a file that recovery does not find is kept (store_keep.h), whatever the table says of it.
// Size: entries are appended; once most of them are of files that the log does not name any more, the table
// is written anew. An entry is needed until all segments that were in use when its file was closed are
// erased.
//
// Threads: any. `writing_` is held during I/O, and taken before `mutex_`, which is not: so closed(),
// is_of_another() and begin_sync() may be called with the store's mutex, and the others may not.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "io/device.h"
#include "tier/log/file_table_format.h"

namespace swale::tier {

std::string file_table_path(const std::string& ssd_directory);

class FileTable {
 public:
  FileTable(io::Device& device, const std::string& ssd_directory, uint64_t log_id)
      : device_(device), path_(file_table_path(ssd_directory)), log_id_(log_id) {}

  // Writes the table anew, durably, with these entries.
  void make(const std::vector<FileEntry>& entries) EXCLUDES(writing_);
  // The file has this id, and is open.
  void add(uint64_t id, FileIdentity identity) EXCLUDES(writing_);
  // Whether the id is known to be another file's.
  bool is_of_another(uint64_t id, const FileIdentity& identity) const EXCLUDES(mutex_);
  // The file's last name was removed. True: the table has the file, and says so now.
  bool add_removed(uint64_t id) EXCLUDES(writing_);
  // The file is closed; `newest`: the ordinal of the newest segment of the log.
  void closed(uint64_t id, uint64_t newest) EXCLUDES(mutex_);
  Status sync() EXCLUDES(writing_);
  // What sync() would sync; null: nothing. The caller syncs it, and tells.
  std::shared_ptr<io::File> begin_sync() EXCLUDES(mutex_);
  void synced(const Status& status) EXCLUDES(mutex_);
  // Most of it is of no use any more.
  bool is_long() const EXCLUDES(mutex_);
  // `oldest`: the ordinal of the oldest segment that is in use.
  void shorten(uint64_t oldest) EXCLUDES(writing_);

 private:
  static constexpr uint64_t kOpen = ~uint64_t{0};
  struct Known {
    FileEntry entry;
    uint64_t until = kOpen;  // needed while a segment of this ordinal, or of an older one, is in use
  };

  Status write_anew() REQUIRES(writing_);
  void append(const FileEntry& entry) REQUIRES(writing_);
  void tell(const Status& status) EXCLUDES(mutex_);

  io::Device& device_;
  const std::string path_;
  const uint64_t log_id_;
  Mutex writing_ ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  std::shared_ptr<io::File> file_ GUARDED_BY(mutex_);
  std::map<uint64_t, Known> known_ GUARDED_BY(mutex_);
  uint64_t end_ GUARDED_BY(mutex_) = 0;
  uint64_t long_from_ GUARDED_BY(mutex_) = 0;
  bool unsynced_ GUARDED_BY(mutex_) = false;
  bool told_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::tier
