#include "tools/reading_bar.h"

#include <algorithm>
#include <chrono>

namespace swale::tools {
namespace {

constexpr std::chrono::milliseconds kLookEvery{200};  // quick enough for people

}  // namespace

ReadingBar::ReadingBar(const imd::Reader& reader, uint64_t expected_bytes, bool wanted)
    : reader_(reader), expected_bytes_(expected_bytes), before_bytes_(reader.stats().bytes_read) {
  if (wanted) thread_ = std::thread([this] { watch(); });
}

ReadingBar::~ReadingBar() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void ReadingBar::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kLookEvery, [this] { return ended_; })) {
    const uint64_t bytes = reader_.stats().bytes_read - before_bytes_;
    if (expected_bytes_ > 0) {
      bar_.update(std::min(bytes, expected_bytes_), expected_bytes_, "MiB", kMiB);
    } else {
      bar_.count(bytes, "MiB read", kMiB);
    }
  }
}

uint64_t bytes_of_epochs(const imd::Manifest& manifest, int64_t epoch) {
  uint64_t bytes = 0;
  for (const imd::EpochEntry& entry : manifest.epochs) {
    if (epoch == imd::Reader::kAllEpochs || entry.epoch == epoch) bytes += entry.data_bytes;
  }
  return bytes;
}

}  // namespace swale::tools
