#include "bench/limited_device.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr double kSlack_s = 1e-3;

void sleep_until(double when_s) {
  timespec when{};
  when.tv_sec = static_cast<time_t>(when_s);
  when.tv_nsec = static_cast<long>((when_s - std::floor(when_s)) * 1e9);
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) != 0) {
  }
}

class LimitedFile final : public io::File {
 public:
  LimitedFile(std::unique_ptr<io::File> below, LimitedDevice& device)
      : below_(std::move(below)), device_(device) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override { return below_->pread(offset, out); }
  void read_many(std::span<io::ReadRequest> requests) override { below_->read_many(requests); }

  Status pwrite(uint64_t offset, Bytes data) override {
    const double passed_s = device_.book(data.size());
    Status status = below_->pwrite(offset, data);
    sleep_until(passed_s);
    return status;
  }

  Status sync() override { return below_->sync(); }
  Result<uint64_t> size() override { return below_->size(); }
  Status truncate(uint64_t size) override { return below_->truncate(size); }
  void prefer_direct() override { below_->prefer_direct(); }
  void reserve(uint64_t end) override { below_->reserve(end); }
  const std::string& path() const override { return below_->path(); }

 private:
  const std::unique_ptr<io::File> below_;
  LimitedDevice& device_;
};

}  // namespace

Result<std::unique_ptr<io::File>> LimitedDevice::open(const std::string& path, io::OpenMode mode) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file, below_.open(path, mode));
  return std::unique_ptr<io::File>(std::make_unique<LimitedFile>(std::move(file), *this));
}

double LimitedDevice::book(size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_at_s_ = std::max(free_at_s_, now_s() - kSlack_s) + static_cast<double>(bytes) / bytes_per_s_;
  return free_at_s_;
}

}  // namespace swale::bench
