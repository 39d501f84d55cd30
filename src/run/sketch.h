// RunSketch: a run's index, kept in memory until its epoch ends: a quotiented fingerprint per record, in hash
// order (quotient filter without shifting: Bender et al., "Don't Thrash", VLDB 2012, frozen and
// bit-packed).
//
// The top bits of a record's rest are, in this order, bucket (bucket_bits) and remainder (8). Records are in
// hash order, so buckets ascend: a bit array with a 1 for each record and a 0 for each bucket's end holds
// them in 1 + 1/load bits per record. A record's rank among the ones is its ordinal: filter and exact index
// in one. For variable runs a second array of the same kind says where each record ends: a 0 for each block,
// a 1 per record.
//
// Threads: a value; its arrays belong to the SketchArena until `memory` is released to it; immutable after
// finish.
// Invariants: (1) ordinal i has its 1 at bit bucket(i) + i of `buckets`; (2) likewise end_block(i) + i of
// `ends`.
// Limits: runs of 1..2^20 records.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "base/bits.h"
#include "base/buffer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "run/format.h"

namespace swale::run {

inline constexpr uint32_t kTailBits = 8;

struct RunSketch {
  BlockNumber first_block = {};  // of the run, in the data log
  uint32_t blocks = 0;
  uint32_t records = 0;
  RunKind kind = RunKind::kUniform;
  uint8_t key_bytes = 0;     // uniform runs
  uint32_t value_bytes = 0;  // uniform runs
  uint8_t bucket_bits = 0;
  std::span<uint64_t> buckets;
  std::span<uint8_t> remainders;
  std::span<uint64_t> ends;  // variable and packed runs
  std::span<uint8_t> tails;  // for filters: per record the 8 hash bits after the remainder
  MutableBytes memory;       // the arena's memory for these arrays
};

// The bytes of an arena that the sketch of a run takes, a multiple of 64. Variable and packed runs have
// `ends`.
size_t sketch_memory_bytes(size_t records, size_t blocks, RunKind kind, bool with_tails = false);

// SketchArena: memory for the arrays of sketches, from the making of a run until its segment is written.
// Released memory is reused before memory that was never used: the first use backs its pages, which costs
// more than all other work on a sketch (docs/design/pipeline.md). So two epochs that overlap a little need
// little more memory than one.
//
// Threads: none; the owner serialises the calls. Any thread may fill allocated memory.
class SketchArena {
 public:
  // kResourceExhausted without memory.
  static Result<SketchArena> create(size_t bytes);

  bool fits(size_t bytes) const { return room_for(bytes) != free_.end(); }
  // The lowest free range. Requires fits(bytes) and a multiple of 64, to which the result is aligned.
  MutableBytes allocate(size_t bytes);
  // Frees memory that came from allocate.
  void release(MutableBytes memory);
  size_t used() const { return used_; }
  void clear();

 private:
  using Room = std::map<size_t, size_t>;  // free bytes by offset; adjacent ranges are merged

  explicit SketchArena(Buffer memory) : memory_(std::move(memory)) { clear(); }
  Room::const_iterator room_for(size_t bytes) const;

  Buffer memory_;
  Room free_;
  size_t used_ = 0;
};

// Bucket bits whose load (records / buckets) lies between 0.8 and 1.6: 9.6 to 10.3 bits per record, and 0.3
// to 0.6 % false candidates per run.
uint32_t natural_bucket_bits(uint64_t records);

// Makes the arrays of a RunSketch whose scalar fields are set.
class SketchBuilder {
 public:
  // Requires arena.fits(sketch_memory_bytes(…)).
  SketchBuilder(RunSketch* sketch, SketchArena& arena, bool with_tails = false);

  // Call in hash order. `hash_prefix` has the top 40 bits of the record's rest; lower bits are ignored.
  void add(Hash hash_prefix) {
    const uint64_t fingerprint = hash_prefix >> shift_;
    const uint64_t bit = (fingerprint >> kRemainderBits) + added_;
    if (bit / 64 != word_index_) {
      buckets_[word_index_] = word_;
      word_index_ = bit / 64;
      word_ = 0;
    }
    word_ = with_bit(word_, bit);
    remainders_[added_++] = static_cast<uint8_t>(fingerprint);
  }
  // Call after the last add.
  void finish() { buckets_[word_index_] = word_; }
  // For sketches with tails, at any time: sets the tails of the records from `ordinal` on.
  void add_tails(const Hash* hash_prefixes, uint32_t ordinal, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
      tails_[ordinal + i] = static_cast<uint8_t>(hash_prefixes[i] >> (shift_ - kTailBits));
  }
  bool with_tails() const { return tails_ != nullptr; }
  // In a variable or packed run, call after add, with the run's block in which the record's last byte lies.
  void add_end(uint32_t end_block) {
    const uint64_t bit = uint64_t{end_block} + added_ - 1;
    ends_[bit / 64] = with_bit(ends_[bit / 64], bit);
  }

 private:
  uint64_t* buckets_;
  uint64_t* ends_;
  uint8_t* remainders_;
  uint8_t* tails_ = nullptr;
  uint32_t shift_;
  uint64_t added_ = 0;
  uint64_t word_ = 0;  // of buckets_, being filled
  uint64_t word_index_ = 0;
};

}  // namespace swale::run
