#include "tier/engine/held_ranges.h"

#include <algorithm>
#include <bit>

namespace swale::tier {

// Twice as many buckets as ranges, and an entry for the holder.
void HeldRanges::make_space(Holder holder) {
  if (holder >= entries_.size()) entries_.resize(std::max<size_t>(64, std::bit_ceil(size_t{holder} + 1)));
  holders_max_ = static_cast<uint32_t>(entries_.size());
  if (size_ < size_max_) return;
  buckets_ = std::vector<Holder>(std::max<size_t>(128, 4 * std::bit_ceil(size_t{size_})), kNone);
  size_max_ = static_cast<uint32_t>(buckets_.size() / 2);
  shift_ = 64 - static_cast<uint32_t>(std::countr_zero(buckets_.size()));
  for (Holder each = 0; each < entries_.size(); ++each) {
    Entry& entry = entries_[each];
    if (entry.end == 0) continue;
    Holder& first = buckets_[bucket_of(entry.file, entry.offset >> kCellShift)];
    entry.next = first;
    first = each;
  }
}

void HeldRanges::find(FileIndex file, uint64_t offset, uint64_t end, std::vector<Holder>* holders) const {
  holders->clear();
  if (size_ == 0 || offset >= end) return;
  const auto overlapping = [&](const Entry& entry) {
    return entry.end != 0 && entry.file == file && entry.offset < end && entry.end > offset;
  };
  const uint64_t first = first_cell(offset);
  const uint64_t last = (end - 1) >> kCellShift;
  if (last - first >= entries_.size()) {  // a long read: fewer entries than cells
    for (Holder at = 0; at < entries_.size(); ++at)
      if (overlapping(entries_[at])) holders->push_back(at);
  } else {
    for (uint64_t cell = first; cell <= last; ++cell)
      for (Holder at = buckets_[bucket_of(file, cell)]; at != kNone; at = entries_[at].next)
        if (entries_[at].offset >> kCellShift == cell && overlapping(entries_[at])) holders->push_back(at);
  }
  std::sort(holders->begin(), holders->end(),
            [this](Holder a, Holder b) { return entries_[a].offset < entries_[b].offset; });
}

}  // namespace swale::tier
