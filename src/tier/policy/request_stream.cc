#include "tier/policy/request_stream.h"

#include <algorithm>
#include <array>
#include <bit>

namespace swale::tier {
namespace {

constexpr int kBucketBits = 7;
constexpr uint32_t kBucketMax = 16;  // entries; more of them are not sorted by insertion

}  // namespace

std::optional<uint32_t> RequestStream::add(FileIndex file, uint64_t offset, uint32_t length) {
  one_file_ = one_file_ && (entries_.empty() || entries_.back().file == file);
  entries_.push_back({offset, file, length});
  if (entries_.size() < requests_) return std::nullopt;
  return take_random_factor();
}

double RequestStream::close_early() {
  const size_t count = entries_.size();
  const uint32_t sum = take_random_factor();
  return count < 2 ? 0 : static_cast<double>(sum) / static_cast<double>(count - 1);
}

// Each entry goes to the bucket that its place in the range of offsets says. Then all are nearly in order,
// unless many of them lie close together.
void RequestStream::sort() {
  if (!one_file_ || entries_.empty()) {
    sorted_ = entries_;
    return std::sort(sorted_.begin(), sorted_.end());
  }
  uint64_t low = ~uint64_t{0};
  uint64_t high = 0;
  for (const Entry& entry : entries_) {
    low = std::min(low, entry.offset);
    high = std::max(high, entry.offset);
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBucketBits);
  std::array<uint32_t, size_t{1} << kBucketBits> ends{};
  for (const Entry& entry : entries_) ++ends[(entry.offset - low) >> shift];
  uint32_t largest = 0;
  uint32_t before = 0;
  for (uint32_t& end : ends) {
    largest = std::max(largest, end);
    end = before += end;
  }
  sorted_.resize(entries_.size());
  for (const Entry& entry : entries_) sorted_[--ends[(entry.offset - low) >> shift]] = entry;
  if (largest > kBucketMax) return std::sort(sorted_.begin(), sorted_.end());
  for (size_t i = 1; i < sorted_.size(); ++i) {
    const Entry entry = sorted_[i];
    size_t at = i;
    for (; at > 0 && entry.offset < sorted_[at - 1].offset; --at) sorted_[at] = sorted_[at - 1];
    sorted_[at] = entry;
  }
}

uint32_t RequestStream::take_random_factor() {
  sort();
  uint32_t sum = 0;
  uint64_t end = 0;  // of all requests of this file so far: a long one may cover several that follow
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const Entry& entry = sorted_[i];
    const bool new_file = i == 0 || entry.file != sorted_[i - 1].file;
    if (i > 0 && (new_file || entry.offset > end)) ++sum;
    const uint64_t entry_end = entry.offset + entry.length;
    end = new_file ? entry_end : std::max(end, entry_end);
  }
  entries_.clear();
  one_file_ = true;
  return sum;
}

}  // namespace swale::tier
