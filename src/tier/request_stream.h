// RequestStream: N consecutive writes, and how random they are (ssdup-plus, sections 2.2 and 2.3.1, Eq. 1).
//
// The writes are sorted by file and offset. The random factor between neighbours is 0 if the second begins where the
// first one ends, or before (a rewrite in place needs no seek), and 1 otherwise; a change of file counts 1. Their sum S
// is 0 to N - 1, and the random percentage is S / (N - 1).
//
// Threads: one at a time. Cost: 128 requests of 24 bytes, sorted once: 20 to 40 ns a request.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tier/options.h"

namespace swale::tier {

class RequestStream {
 public:
  explicit RequestStream(uint32_t requests) : requests_(requests) { entries_.reserve(requests); }

  // Adds a write. Returns S if this write completes the stream, which then begins anew.
  std::optional<uint32_t> add(FileIndex file, uint64_t offset, uint32_t length);

  // S of the writes so far, over their number less one: for decisions about a stream that will not fill soon. The
  // stream begins anew. 0 for fewer than two writes.
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

  uint32_t requests_;
  std::vector<Entry> entries_;
};

}  // namespace swale::tier
