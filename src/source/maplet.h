// Sorted maplet: pairs in the order of their hashes, each with some bits of its hash and its source. Several
// sources of one key stand side by side, so that it takes what a retrieval structure cannot: duplicates.
//
// Format: n entries in order of fraction, n buckets. An entry's bucket is the high half of fraction * n, its
// remainder the top remainder_bits of the low half. First 2n bits: for each bucket a one for each of its
// entries, then a zero; filled up to a byte. Then for each entry its remainder, and its source in
// source_bits; filled up to a byte.
// Threads: values; a view belongs to one thread at a time. Errors: appending throws std::bad_alloc.
// Limits: 2^31 entries; remainders of 0..24 bits and sources of 0..24 bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bits.h"
#include "base/bytes.h"

namespace swale::source {

struct MapletShape {
  uint32_t entries = 0;
  uint32_t remainder_bits = 0;
  uint32_t source_bits = 0;

  uint64_t bucket_bytes() const { return (uint64_t{entries} * 2 + 7) / 8; }
  uint64_t entry_bytes() const { return (uint64_t{entries} * (remainder_bits + source_bits) + 7) / 8; }
  uint64_t bytes() const { return bucket_bytes() + entry_bytes(); }
};

struct MapletEntry {
  uint64_t fraction;  // of 2^64: the hash within its shard
  uint32_t source;
};

// Appends the maplet of these entries, which are sorted by fraction.
void append_maplet(std::span<const MapletEntry> entries, const MapletShape& shape, std::string* out);

class MapletView {
 public:
  // `bytes` are shape.bytes() of them, with kSlackBytes after. False if the bucket bits are not those of a
  // maplet.
  bool open(const MapletShape& shape, const char* bytes);

  // Appends the sources of the entries that may be this key's.
  void candidates(uint64_t fraction, std::vector<uint32_t>* out) const;

 private:
  static constexpr uint32_t kStride = 512;  // buckets between two known positions

  MapletShape shape_;
  BitSpan buckets_;
  const char* entries_ = nullptr;
  std::vector<uint32_t> starts_;  // the bit at which every kStride-th bucket begins
};

}  // namespace swale::source
