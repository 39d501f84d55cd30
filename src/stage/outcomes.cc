#include "stage/outcomes.h"

#include <algorithm>
#include <utility>

#include "stage/manifest.h"

namespace swale::stage {

void Outcomes::done(const Entry& entry, std::optional<uint32_t> crc, By by) {
  const bool is_link = !crc;
  ++counts_.files_done;
  if (!is_link) counts_.bytes_done += entry.bytes();
  if (by == By::kEarlierRun) {
    ++counts_.files_before;
    counts_.bytes_before += entry.bytes();
  }
  if (!keeps_way_back_) return;
  std::string line = manifest_line(entry.destination, entry.source, crc);
  const MutexLock lock(mutex_);
  way_back_.push_back(std::move(line));
}

void Outcomes::fail(const std::string& path, const Status& status) {
  if (status.code() == Code::kAborted) return;
  ++counts_.files_failed;
  const MutexLock lock(mutex_);
  if (failures_.size() < kFailuresKept) failures_.push_back({path, std::string(status.message())});
}

void Outcomes::remark(std::string text) {
  const MutexLock lock(mutex_);
  remarks_.push_back(std::move(text));
}

std::vector<Failure> Outcomes::failures() const {
  const MutexLock lock(mutex_);
  return failures_;
}

std::vector<std::string> Outcomes::remarks() const {
  const MutexLock lock(mutex_);
  return remarks_;
}

std::string Outcomes::way_back() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> lines = way_back_;
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace swale::stage
