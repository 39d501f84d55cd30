// Sorting of memtable entries: 64-bit integers whose top 40 bits are a hash, so uniform; within a bin of the
// memtable the top 8 bits are equal.
//
// Each bin, about 600 entries that fit a first-level cache, is sorted when it is needed: two radix passes of
// 7 bits, then a repair of the few neighbours that share all 22 bits. So a run produces blocks evenly while
// it is being sorted. Large bins and long clusters of equal prefixes (a hot key, or keys made to collide) go
// to std::sort, so the worst case stays n log n.
// Threads: a scratch belongs to one worker at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/status.h"
#include "run/memtable.h"

namespace swale::run {

// Working memory of one worker, used by one run after the other: an entry per record.
class RunScratch {
 public:
  static Result<RunScratch> create(size_t records_max);
  static size_t memory_bytes(size_t records_max);

  size_t records_max() const { return entries_.size() / sizeof(uint64_t); }
  uint64_t* entries() { return reinterpret_cast<uint64_t*>(entries_.data()); }

 private:
  explicit RunScratch(Buffer entries) : entries_(std::move(entries)) {}
  Buffer entries_;
};

// Sorts entries of one bin, ascending.
void sort_bin(std::span<uint64_t> entries);

// Returns the entries of a memtable in ascending order; sorts one bin at a time.
class EntrySorter {
 public:
  // Requires memtable.count() <= scratch.records_max(). Both must outlive the sorter, the memtable unchanged.
  EntrySorter(const Memtable& memtable, RunScratch& scratch)
      : memtable_(memtable), entries_(scratch.entries()), fetcher_(memtable) {}

  // The next entries: at least `count`, or all that are left. Valid until the next call.
  std::span<const uint64_t> peek(size_t count) {
    if (end_ - begin_ < count) refill(count);
    return {entries_ + begin_, end_ - begin_};
  }
  // Requires that peek returned as many.
  void pop(size_t count) { begin_ += count; }
  // For the code that reads the rows: it must call fetch with their bytes as it proceeds.
  Memtable::RowFetcher& fetcher() { return fetcher_; }

 private:
  void refill(size_t count);

  const Memtable& memtable_;
  uint64_t* const entries_;
  size_t begin_ = 0;
  size_t end_ = 0;
  uint32_t next_bin_ = 0;
  Memtable::RowFetcher fetcher_;
};

}  // namespace swale::run
