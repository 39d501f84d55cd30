// FilesLog: what a node's server must still know of its files when it is started again, because the logs of
// the processes cannot say it: up to which order the bytes of a file are drained, where it was cut, and what
// its backing file was.
//
//   FOLDER := StateLog "files-" of kFilesLogKind
//   record  := order_max u64, row*  the first one has all rows, later ones those that changed
//   row     := high u64, low u64, floor u64, size_order u64, size u64, device u64, inode u64,
//              backing_size u64, modified_ns u64, ours (device u64, inode u64, size u64, modified_ns u64),
//              cuts u64, (order u64, size u64)*
//
// Fuzzed by fuzz/fs_state_fuzz.cc; golden file: tests/golden/job-logs-v1.
//
// A row replaces the row of that file before it. No order above order_max was given when it was written, so
// the next server begins behind it: no byte that is written later passes for one that was drained.
//
// Threads: one at a time. Errors: after a failure nothing has changed, in memory and on storage. kCorruption
// names file and offset.
// Limits: kCutsMax of a file between two drains.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fs/node/state_log.h"
#include "io/device.h"
#include "meta/index/types.h"

namespace swale::fs {

inline constexpr uint16_t kFilesLogKind = 16;
inline constexpr size_t kCutsMax = 1024;

// A file of the backing as it was seen; inode 0: there was none.
struct Stamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

struct FileRow {
  struct Cut {
    uint64_t order = 0;
    uint64_t size = 0;
    friend bool operator==(const Cut&, const Cut&) = default;
  };
  uint64_t floor = 0;       // bytes of this order and before it are drained or removed
  uint64_t size_order = 0;  // 0: never set; else the file had `size` behind this order
  uint64_t size = 0;
  Stamp backing;          // what it must still be when it is drained, or else
  Stamp ours;             // what a drain has made and was about to name
  std::vector<Cut> cuts;  // both ascending: bytes up to this order end at this size

  // How much of a segment of this order counts: up to this offset.
  uint64_t end_of(uint64_t order) const;
  void cut(uint64_t order, uint64_t new_size, bool shrinks);
  // Up to `order` all is in the backing file now.
  void drained(uint64_t order, const Stamp& now);
  uint64_t backing_end() const;  // bytes of the backing file from here on do not count
  friend bool operator==(const FileRow&, const FileRow&) = default;
};

class FilesLog {
 public:
  using Rows = std::map<meta::FileId, FileRow>;

  // Reads what is there, and begins a new file of it.
  static Result<std::unique_ptr<FilesLog>> open(io::Device& device, const std::string& folder) noexcept;

  // The rows that are there, for somebody who changes nothing.
  static Result<Rows> look(io::Device& device, const std::string& folder) noexcept;

  const Rows& rows() const { return rows_; }
  uint64_t order_max() const { return order_max_; }
  // In one record. Durable when it returns.
  Status put(Rows rows, uint64_t order_max) noexcept;
  Status put(const meta::FileId& file, const FileRow& row, uint64_t order_max) noexcept;
  // These rows are not needed any more; they go with the next rewriting.
  void forget(const meta::FileId& file) noexcept { rows_.erase(file); }

 private:
  FilesLog() = default;
  Status find(io::Device& device, const std::string& folder);
  bool take(Bytes payload);
  static std::string whole(const Rows& rows, uint64_t order_max);
  Status change(Rows* rows, uint64_t order_max);

  Rows rows_;
  uint64_t order_max_ = 0;
  std::unique_ptr<StateLog> log_;
};

}  // namespace swale::fs
