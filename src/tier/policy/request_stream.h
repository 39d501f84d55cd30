// RequestStream: N consecutive writes, and how random they are (ssdup-plus, sections 2.2 and 2.3.1, Eq. 1).
//
// The writes are sorted by file and offset. The random factor between neighbours is 0 if the second begins
// where the first one ends, or before (a rewrite in place needs no seek), and 1 otherwise; a change of file
// counts 1. Their sum S is 0 to N - 1, and the random percentage is S / (N - 1).
//
// Threads: one at a time. Cost: 128 requests of 16 bytes, twice; sorted once. A stream of one file is sorted
// by distribution, about 30 instructions a request; another one by comparisons, 110 instructions with
// branches that are hard to guess.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tier/policy/options.h"

namespace swale::tier {

class RequestStream {
 public:
  explicit RequestStream(uint32_t requests) : requests_(requests) {
    entries_.reserve(requests);
    sorted_.reserve(requests);
  }

  // Adds a write. Returns S if this write completes the stream, which then begins anew.
  std::optional<uint32_t> add(FileIndex file, uint64_t offset, uint32_t length);

  // S of the writes so far, over their number less one: for decisions about a stream that will not fill soon.
  // The stream begins anew. 0 for fewer than two writes.
  double close_early();

  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  struct Entry {
    uint64_t offset;
    FileIndex file;
    uint32_t length;
    bool operator<(const Entry& other) const {
      return file != other.file ? file < other.file : offset < other.offset;
    }
  };

  uint32_t take_random_factor();
  void sort();

  uint32_t requests_;
  bool one_file_ = true;
  std::vector<Entry> entries_;
  std::vector<Entry> sorted_;  // by sort
};

}  // namespace swale::tier
