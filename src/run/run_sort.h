// Sorting of memtable entries: 64-bit integers whose top 40 bits are uniform (a hash).
//
// Two radix passes of 11 bits over the top 22 bits, then a repair of the few neighbours that share those:
// with 350 K entries over 4 M prefixes a cluster has two or three members. Long clusters (a hot key, or keys
// made to collide) are sorted by std::sort, so the worst case stays n log n.
// Threads: a scratch belongs to one worker at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/status.h"

namespace swale::run {

// Working memory of one worker, shared by its runs one after the other.
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

// Ascending. Requires entries.size() <= scratch.records_max().
void sort_entries(std::span<uint64_t> entries, RunScratch& scratch);

}  // namespace swale::run
