// LimitedDevice: wraps a Device and makes its writes as slow as a store of a given bandwidth. Benchmarks use
// it to show, on any machine, how a rank's share of a parallel file system slows a writer.
//
// Each write gets a due time at the end of a virtual queue: the end advances by bytes / rate and is never
// earlier than now, so idle time gives no credit. A write completes when the device below has carried it out
// and its due time has passed: the limit hides the device's latency instead of adding to it. A sync waits for
// the due times of all earlier writes. Reads and all other calls are not slowed.
//
//   due = max(due, now) + bytes / rate;   completed at max(device, due)
//
// Threads: as Device says; all files and queues share one virtual queue. Files and queues must not be used
// after the device below or the clock is destroyed.
// Limits: a queue's completion is never early, and late by at most the duration of one operation of the
// device below.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/device.h"
#include "io/io_queue.h"

namespace swale::io {

class LimitedDevice : public Device {
 public:
  LimitedDevice(Device& device, uint64_t write_bytes_per_second, const Clock& clock = system_clock());

  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth) override;
  Result<std::unique_ptr<Device>> anchored(const std::string& directory) override;  // shares the limit
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override { return device_.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return device_.rename(from, to); }
  Status rename_new(const std::string& from, const std::string& to) override {
    return device_.rename_new(from, to);
  }
  Status remove(const std::string& path) override { return device_.remove(path); }
  Status sync_directory(const std::string& path) override { return device_.sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return device_.list(path); }
  Result<bool> exists(const std::string& path) override { return device_.exists(path); }

 private:
  friend class LimitedFile;
  friend class LimitedQueue;
  class Limit;

  LimitedDevice(std::unique_ptr<Device> owned, std::shared_ptr<Limit> limit);

  const std::unique_ptr<Device> owned_;  // of an anchored device
  Device& device_;
  const std::shared_ptr<Limit> limit_;  // shared with files, queues and anchored devices
};

}  // namespace swale::io
