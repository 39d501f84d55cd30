#include "tier/request_stream.h"

#include <algorithm>

namespace swale::tier {

std::optional<uint32_t> RequestStream::add(FileIndex file, uint64_t offset, uint32_t length) {
  entries_.push_back({offset, file, length});
  if (entries_.size() < requests_) return std::nullopt;
  return take_random_factor();
}

double RequestStream::close_early() {
  const size_t count = entries_.size();
  const uint32_t sum = take_random_factor();
  return count < 2 ? 0 : static_cast<double>(sum) / static_cast<double>(count - 1);
}

uint32_t RequestStream::take_random_factor() {
  std::sort(entries_.begin(), entries_.end());
  uint32_t sum = 0;
  uint64_t end = 0;  // of all requests of this file so far: a long one may cover several that follow
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool new_file = i == 0 || entry.file != entries_[i - 1].file;
    if (i > 0 && (new_file || entry.offset > end)) ++sum;
    const uint64_t entry_end = entry.offset + entry.length;
    end = new_file ? entry_end : std::max(end, entry_end);
  }
  entries_.clear();
  return sum;
}

}  // namespace swale::tier
