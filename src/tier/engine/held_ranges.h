// HeldRanges: the ranges of files that writes hold from their begin to their end, so that overlapping writes
// wait.
//
// A hash table of cells: a range is listed in the cell of its file in which it begins. Ranges are short
// (kWriteBytesMax), so a search looks into the cells of its own range, and into those before it in which the
// longest range could begin. Nothing but a read asks for the order of ranges. An ordered map costs seven
// times more here, because thousands of ranges are held while writers wait for a full log
// (docs/design/tier.md).
//
// Invariants: (1) ranges of one file do not overlap; (2) a holder has one range at most.
// Threads: one at a time. Memory: 24 bytes for each holder up to the highest one, and at least two buckets of
// 4 bytes for each range. std::bad_alloc leaves the table as it was.
#pragma once

#include <cstdint>
#include <vector>

#include "tier/policy/options.h"

namespace swale::tier {

class HeldRanges {
 public:
  // The holder's number; small numbers, because they are indices of an array.
  using Holder = uint32_t;

  // Adds a range that is not empty, unless one of the file overlaps it. Returns whether it was added.
  bool add_if_free(Holder holder, FileIndex file, uint64_t offset, uint64_t end);
  // Returns whether the holder had a range.
  bool remove(Holder holder);
  bool overlaps(FileIndex file, uint64_t offset, uint64_t end) const;
  // The holders of the ranges that overlap [offset, end), in the order of their ranges.
  void find(FileIndex file, uint64_t offset, uint64_t end, std::vector<Holder>* holders) const;

  uint32_t size() const { return size_; }

 private:
  static constexpr Holder kNone = ~Holder{0};
  static constexpr uint32_t kCellShift = 17;  // 128 KiB: what the paper's requests have

  struct Entry {
    uint64_t offset = 0;
    uint64_t end = 0;  // 0: holds nothing
    FileIndex file = 0;
    Holder next = kNone;  // in the same bucket
  };

  size_t bucket_of(FileIndex file, uint64_t cell) const {
    return static_cast<size_t>(((cell + (uint64_t{file} << 32)) * 0x9e3779b97f4a7c15) >> shift_);
  }
  // Where a range can begin that reaches beyond `offset`.
  uint64_t first_cell(uint64_t offset) const {
    return offset < longest_ ? 0 : (offset - longest_ + 1) >> kCellShift;
  }
  void make_space(Holder holder);

  std::vector<Entry> entries_;   // by holder
  std::vector<Holder> buckets_;  // the first of each; a power of two
  uint32_t shift_ = 0;           // 64 less the bits of a bucket's number
  uint32_t size_ = 0;
  uint32_t size_max_ = 0;  // a half of the buckets
  uint32_t holders_max_ = 0;
  uint64_t longest_ = 0;  // of all ranges since there was none
};

// Here, because a write asks twice.
inline bool HeldRanges::overlaps(FileIndex file, uint64_t offset, uint64_t end) const {
  if (size_ == 0) return false;
  const uint64_t last = (end - 1) >> kCellShift;
  for (uint64_t cell = first_cell(offset); cell <= last; ++cell) {
    for (Holder at = buckets_[bucket_of(file, cell)]; at != kNone; at = entries_[at].next) {
      const Entry& entry = entries_[at];
      if (entry.offset < end && entry.end > offset && entry.file == file) return true;
    }
  }
  return false;
}

inline bool HeldRanges::add_if_free(Holder holder, FileIndex file, uint64_t offset, uint64_t end) {
  if (overlaps(file, offset, end)) return false;
  if (holder >= holders_max_ || size_ >= size_max_) make_space(holder);
  Holder& first = buckets_[bucket_of(file, offset >> kCellShift)];
  entries_[holder] = {offset, end, file, first};
  first = holder;
  ++size_;
  if (longest_ < end - offset) longest_ = end - offset;
  return true;
}

inline bool HeldRanges::remove(Holder holder) {
  if (holder >= holders_max_ || entries_[holder].end == 0) return false;
  Entry& entry = entries_[holder];
  Holder* link = &buckets_[bucket_of(entry.file, entry.offset >> kCellShift)];
  while (*link != holder) link = &entries_[*link].next;
  *link = entry.next;
  entry.end = 0;
  if (--size_ == 0) longest_ = 0;
  return true;
}

}  // namespace swale::tier
