// Sorting of memtable entries: 64-bit integers whose top 40 bits are uniform (a hash).
//
// The top digit (8 bits) is counted by the memtable as entries arrive, and the entries are dealt out to 256 buckets by
// it, once through memory. Each bucket, some 800 entries that fit a first-level cache, is then sorted when it is
// needed: two radix passes of 7 bits, and a repair of the few neighbours that share all 22 bits. So the blocks of a
// run leave evenly while it is being sorted. Long clusters of equal prefixes (a hot key, or keys made to collide) are
// left to std::sort, so the worst case stays n log n.
// Threads: a scratch belongs to one worker at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/status.h"

namespace swale::run {

inline constexpr uint32_t kTopDigitBits = 8;
using DigitCounts = std::array<uint32_t, size_t{1} << kTopDigitBits>;

inline size_t top_digit(uint64_t entry) { return entry >> (64 - kTopDigitBits); }

// Working memory of one worker, shared by its runs one after the other: two entries per record.
class RunScratch {
 public:
  static Result<RunScratch> create(size_t records_max);
  static size_t memory_bytes(size_t records_max);

  size_t records_max() const { return entries_.size() / sizeof(uint64_t); }
  uint64_t* entries() { return reinterpret_cast<uint64_t*>(entries_.data()); }
  void touch() { entries_.touch(); }

 private:
  explicit RunScratch(Buffer entries) : entries_(std::move(entries)) {}
  Buffer entries_;
};

// Sorts ascending, bucket by bucket.
class EntrySorter {
 public:
  // Deals the entries out. Requires entries.size() <= scratch.records_max(), and counts of their top digits.
  // Neither the scratch nor the entries, whose order is lost, may be used otherwise until the sorter is done with.
  EntrySorter(std::span<uint64_t> entries, const DigitCounts& counts, RunScratch& scratch);

  // Makes at least the first `count` entries (or all, if there are fewer) sorted.
  void sort_up_to(size_t count) {
    while (sorted_ < count && sorted_ < size_) sort_bucket();
  }
  // Entry i for i < sorted().
  const uint64_t* entries() const { return entries_; }
  size_t sorted() const { return sorted_; }

 private:
  void sort_bucket();

  uint64_t* entries_;  // in the scratch
  uint64_t* spare_;    // where they came from
  size_t size_;
  size_t sorted_ = 0;
  size_t next_bucket_ = 0;
  DigitCounts counts_;
};

}  // namespace swale::run
