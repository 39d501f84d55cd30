// BackingCost: what a write to the backing device costs, although the system's page cache may hide it.
//
// A file on the backing device is written through the system's page cache, which takes a write in
// microseconds. The disk pays later, and so does the sync that waits for it. If what is measured is much less
// than the disk model says, the cost is hidden, and the model counts. Once syncs show that the device is
// quick, the measurement counts again.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "io/disk_model.h"

namespace swale::tier {

// A mean of recent samples, each of which counts with `weight`; 0: there was none yet.
inline void smooth(double* value, double sample, double weight) {
  *value += (sample - *value) * (*value == 0 ? 1 : weight);
}

class BackingCost {
 public:
  explicit BackingCost(const io::DiskModel& disk) : disk_(disk) {}

  // A slot of `length` bytes at `position` was written in `took_ns`; `before` is where the last one of its
  // file ended, because the page cache sorts by file. Returns what the disk model says.
  double slot_written(uint64_t before, uint64_t position, uint64_t length, double took_ns);

  // A sync was answered after `took`, for which `writes` writes of the file had come, some of them to the
  // backing device.
  void sync_answered(double took, uint32_t writes);

  // Whether writes are answered before the device has them.
  bool hidden() const {
    return modelled_ns_ > kHiddenRatio * measured_ns_ &&
           (synced_write_ns_ == 0 || synced_write_ns_ >= modelled_ns_);
  }

 private:
  static constexpr double kHiddenRatio = 8;    // the elevator's order alone saves less
  static constexpr double kWeight = 1.0 / 16;  // of a sample

  const io::DiskModel disk_;
  double measured_ns_ = 0;      // of a slot, smoothed
  double modelled_ns_ = 0;      // the same
  double synced_write_ns_ = 0;  // of a sync, for each write that it waited for, smoothed
};

}  // namespace swale::tier
