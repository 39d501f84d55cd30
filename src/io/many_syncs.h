// ManySyncs: syncs many files at the same time: each sync waits for the disk, which does better with many.
//
// Threads: one at a time.
// Errors: each file has its own status; std::bad_alloc, and then no sync is under way.
// Limits: kAtOnce syncs are in flight.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "io/io_queue.h"

namespace swale::io {

class ManySyncs {
 public:
  static constexpr size_t kAtOnce = 64;

  // The device must outlive it; the files are of it, or of a device like it (Device::anchored).
  explicit ManySyncs(Device& device) : device_(device) {}

  void sync(std::span<const std::pair<File*, Status*>> files);

 private:
  Device& device_;
  std::unique_ptr<IoQueue> queue_;  // made when it is needed
};

}  // namespace swale::io
