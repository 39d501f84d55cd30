// LogReads: reads a file where the logs of this node have it, without a request to the server for each read:
// by the maps that the server publishes (fs/log/map_reader.h).
//
//   read() ─► the map that it was told ─► counts: the bytes
//               └ not any more: kAskMap (fs/log/map_format.h), then the same, once
//
// Threads: any; of two that read at the same time one may be sent to the mount. A child of fork may go on.
// Invariants: MapReader's.
// Errors: none: what it does not read the server is to be asked for, which tells what is wrong.
// Memory: for all files of a tree that this process reads so, one MapReader: 140 KB, and of each log that
// they stand in an open file and a mapping.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/mutex.h"
#include "fs/log/map_reader.h"

namespace swale::fs {

class LogReads {
 public:
  using Ask = std::function<int(MapRequest*)>;  // 0 or an errno
  MapReader::Outcome read(const Ask& ask, uint64_t offset, MutableBytes out);
  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct Map {
    std::shared_ptr<MapReader> reader;  // null: none was told
    uint32_t slot = 0;
    uint64_t ticket = 0;
  };
  bool ask_again(const Ask& ask, uint64_t offset, size_t bytes) REQUIRES(mutex_);

  Mutex mutex_;
  Map map_ GUARDED_BY(mutex_);
  uint32_t patience_ GUARDED_BY(mutex_) = 0;  // reads that do not ask, after answers that were of no use
  uint32_t waits_ GUARDED_BY(mutex_) = 0;     // of those still to come
  std::atomic<bool> was_of_use_ = true;       // the last answer
  std::atomic<bool> refused_ = false;         // for good
  std::atomic<uint64_t> bytes_read_ = 0;
};

}  // namespace swale::fs
