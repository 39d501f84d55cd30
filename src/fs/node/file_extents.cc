#include "fs/node/file_extents.h"

namespace swale::fs {

Result<uint64_t> PlaceTable::add(const meta::Place& place, uint64_t length) {
  const std::pair<uint32_t, uint64_t> key{place.log, place.address >> kRegionBits};
  auto at = numbers_.find(key);
  if (at == numbers_.end()) {
    if (free_.empty()) {
      if (regions_.size() == kRegionsMax)
        return error(Code::kResourceExhausted, Scope::kNode,
                     "log {}: {} regions of logs have bytes that are not drained; drain some", place.log,
                     kRegionsMax);
      free_.reserve(regions_.size() + 1);
      regions_.emplace_back();
      free_.push_back(static_cast<uint32_t>(regions_.size() - 1));
    }
    at = numbers_.emplace(key, free_.back()).first;
    free_.pop_back();
    regions_[at->second] = {key.first, key.second, 0};
  }
  regions_[at->second].live += length;
  return uint64_t{at->second} << kRegionBits | place.address % kRegionBytes;
}

void PlaceTable::remove(uint64_t address, uint64_t length) noexcept {
  const auto number = static_cast<uint32_t>(address >> kRegionBits);
  Region& region = regions_[number];
  assert(region.live >= length);
  region.live -= length;
  if (region.live > 0) return;
  numbers_.erase({region.log, region.number});
  free_.push_back(number);
}

}  // namespace swale::fs
