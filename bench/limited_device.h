// LimitedDevice: another Device whose writes take as long as on storage of a given bandwidth, without burst credit
// (but for 1 ms, which makes up for the timer's lateness). All files share the bandwidth.
//
// Threads: thread-safe; writers wait side by side. Errors: those of the device below.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/device.h"

namespace swale::bench {

class LimitedDevice final : public io::Device {
 public:
  LimitedDevice(io::Device& below, double bytes_per_s) : below_(below), bytes_per_s_(bytes_per_s) {}

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override;
  Status make_directory(const std::string& path) override { return below_.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return below_.rename(from, to); }
  Status remove(const std::string& path) override { return below_.remove(path); }
  Status sync_directory(const std::string& path) override { return below_.sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return below_.list(path); }
  Result<bool> exists(const std::string& path) override { return below_.exists(path); }

  // Takes `bytes` out of the bandwidth; returns the time at which they have passed.
  double book(size_t bytes);

 private:
  io::Device& below_;
  const double bytes_per_s_;
  std::mutex mutex_;
  double free_at_s_ = 0;
};

}  // namespace swale::bench
