// LogReads: reads a file where the logs of this node have it, without a request to the server for each read.
//
//   read() ─► marks and epoch as they were? ─► logs' files ─► checksums ─► epoch still? ─► the bytes
//                └ no: kAskPlaces (fs/log/attach_format.h), then the same
//
// Logs are read by calls of the system: what the server takes away meanwhile is zeros and another epoch,
// never a signal.
//
// Threads: any; of two that read at the same time one may be sent to the mount. A child of fork may go on.
// Invariants: (1) A write that had returned when read() was called is seen by it. (2) What it returns has the
// checksums that the server has taken.
// Errors: none: 0 bytes mean that the server is to be asked, which tells what is wrong.
// Memory: 15 KB; of each log that the file stands in an open file and a mapping for all of a process's files.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "fs/client/mapped_log.h"
#include "fs/log/attach_format.h"

namespace swale::fs {

class LogReads {
 public:
  using Ask = std::function<int(ToldPlaces*)>;  // 0 or an errno
  // For tests, which must notice.
  struct Rules {
    bool looks_at_marks = true;
    bool looks_at_epoch = true;
    bool checks = true;
  };
  LogReads() = default;
  explicit LogReads(const Rules& rules) : rules_(rules) {}

  // Bytes from `offset` on, as far as they stand in logs without a gap. 0: the mount has them, or the end.
  size_t read(const Ask& ask, uint64_t offset, MutableBytes out);
  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  // What was told, and the logs that it is about.
  struct Told {
    ToldPlaces places;
    std::shared_ptr<const MappedLog> node;                     // its first page is the NodePage
    std::vector<std::shared_ptr<const MappedLog>> mark_logs;   // of each mark
    std::vector<std::shared_ptr<const MappedLog>> place_logs;  // of each place
    std::vector<uint32_t> first_check;                         // of each place

    bool open();
    bool speaks_of(uint64_t offset) const { return offset >= places.offset && offset < places.end; }
    bool has_epoch() const;
    bool has_marks() const;
    size_t copy(uint64_t offset, MutableBytes out, bool checks) const;
    bool copy_place(uint32_t number, uint64_t skip, MutableBytes out, bool checks) const;
  };
  std::shared_ptr<const Told> told_for(const Ask& ask, uint64_t offset, size_t bytes);
  std::shared_ptr<const Told> ask_again(const Ask& ask, uint64_t offset, size_t bytes) REQUIRES(mutex_);

  const Rules rules_;
  Mutex mutex_;
  std::shared_ptr<const Told> told_ GUARDED_BY(mutex_);
  bool asked_ GUARDED_BY(mutex_) = false;
  uint32_t uses_ GUARDED_BY(mutex_) = 0;      // of told_
  uint32_t patience_ GUARDED_BY(mutex_) = 0;  // reads that do not ask, after answers that were of no use
  uint32_t waits_ GUARDED_BY(mutex_) = 0;     // of those still to come
  std::atomic<bool> refused_ = false;         // for good
  std::atomic<uint64_t> bytes_read_ = 0;
};

}  // namespace swale::fs
