// The auxiliary table of the 2020 paper: a partial-key cuckoo hash table with side tables, kept for
// comparison.
//
// A slot has a fingerprint of 4 bits and a source; buckets of 4 slots; a key has two buckets, and from a
// slot's bucket and fingerprint follows the other one, so that a slot can move. When kMovesMax moves find no
// free slot, the table is full, and a side table takes what comes afterwards.
// Source: deltafs-streaming-2020, section 4.2, figure 12; Fan et al., "Cuckoo filter", CoNEXT 2014. The paper
// names the
//   sizes "powers of 2" and the side tables; that the last displaced slot stays beside its table (a *victim*)
//   is ours.
//
// A query needs the whole table: its slots are spread over all of it.
// Format: buckets of 4 slots of 4 + source_bits bits (source low, fingerprint high; 0 is empty), filled
// up to a byte; then the victim: bucket u32, slot u32 (0: none). With m = next_fraction(kept hash, 7):
// the fingerprint is m >> 60, 1 instead of 0; the first bucket is m modulo buckets, the other one bucket
// ^ (fingerprint * 0x5bd1e995), modulo buckets. A query asks all tables. Pairs that no table takes (keys
// with more sources than slots) are a maplet shard after them.
// Threads: values. Errors: making a table and keeping pairs throw std::bad_alloc.
// Limits: 2^30 slots a table; memory for all pairs that a side table takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "source/pair.h"

namespace swale::source {

inline constexpr uint32_t kCuckooFingerprintBits = 4;
inline constexpr uint32_t kCuckooSlotsPerBucket = 4;
inline constexpr size_t kCuckooVictimBytes = 8;

struct CuckooShape {
  uint32_t buckets = 0;  // a power of two
  uint32_t source_bits = 0;

  uint32_t slot_bits() const { return kCuckooFingerprintBits + source_bits; }
  uint64_t slot_bytes() const { return (uint64_t{buckets} * kCuckooSlotsPerBucket * slot_bits() + 7) / 8; }
  uint64_t bytes() const { return slot_bytes() + kCuckooVictimBytes; }
};

class CuckooTable {
 public:
  CuckooTable(uint32_t buckets, uint32_t source_bits);

  // False if the table was full before: then nothing has happened.
  bool add(Pair pair);

  const CuckooShape& shape() const { return shape_; }
  uint32_t used_slots() const { return used_; }
  void append_to(std::string* out) const;

 private:
  uint64_t slot(uint64_t index) const;
  void set_slot(uint64_t index, uint64_t value);
  bool put(uint32_t bucket, uint64_t value);

  CuckooShape shape_;
  std::string slots_;
  uint32_t used_ = 0;
  uint64_t random_ = 301;  // which slot gives way; fixed, so that a table is the same each time
  bool full_ = false;
  uint32_t victim_bucket_ = 0;
  uint32_t victim_ = 0;
};

class CuckooView {
 public:
  // `bytes`: shape.bytes() of them, with kSlackBytes after.
  CuckooView(const CuckooShape& shape, const char* bytes) : shape_(shape), bytes_(bytes) {}
  void candidates(uint64_t kept, std::vector<uint32_t>* out) const;

 private:
  CuckooShape shape_;
  const char* bytes_;
};

// All tables of an epoch: the main one, sized from the count of pairs, and the side tables.
class CuckooBuilder {
 public:
  // Sizes are powers of two: one table, or a smaller one and side tables if those take fewer slots together.
  CuckooBuilder(uint64_t pairs, uint32_t source_bits);
  void add(Pair pair);
  // Makes the side tables and hands all tables out. A key with more sources than its two buckets have slots
  // fills tables that are nearly empty: once a side table is less than half full, the pairs that are left go
  // to *rest, in order.
  std::vector<CuckooTable> finish(std::vector<Pair>* rest);

 private:
  uint32_t source_bits_;
  std::vector<CuckooTable> tables_;
  std::vector<Pair> left_;  // what the main table did not take
};

}  // namespace swale::source
