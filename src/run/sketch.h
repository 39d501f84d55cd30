// RunSketch: what a run's index is made of, kept in memory until its epoch ends: a quotiented fingerprint per
// record, in hash order (quotient filter without shifting: Bender et al., "Don't Thrash", VLDB 2012, frozen
// and bit-packed).
//
// The top bits of a record's rest are, in this order, bucket (bucket_bits) and remainder (8). Records are in
// hash order, so buckets ascend: an array with a 0 for each bucket's end and a 1 for each record holds them
// in 1 + 1/load bits a record, and a record's position in it is its ordinal: filter and exact index in one.
// For variable runs a second array of the same kind says where each record ends: a 0 for each block, a 1 per
// record.
//
// Threads: a value; immutable after finish.
// Invariants: (1) ordinal i has its 1 at bit bucket(i) + i of `buckets`; (2) likewise end_block(i) + i of
// `ends`.
// Limits: runs of 1..2^20 records.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "run/format.h"

namespace swale::run {

struct RunSketch {
  uint64_t first_block = 0;  // of the run, in the data log
  uint32_t blocks = 0;
  uint32_t records = 0;
  RunKind kind = RunKind::kUniform;
  uint8_t key_bytes = 0;     // uniform runs
  uint32_t value_bytes = 0;  // uniform runs
  uint8_t bucket_bits = 0;
  std::vector<uint64_t> buckets;
  std::vector<uint8_t> remainders;
  std::vector<uint64_t> ends;  // variable runs

  size_t memory_bytes() const {
    return sizeof(*this) + (buckets.size() + ends.size()) * sizeof(uint64_t) + remainders.size();
  }
};

// An upper bound of memory_bytes() for a run that is not made yet.
size_t sketch_memory_bytes(size_t records, size_t blocks);

// Bucket bits whose load (records / buckets) is nearest to 1 on a logarithmic scale: between 0.71 and 1.41.
uint32_t natural_bucket_bits(uint64_t records);

// Fills the arrays of a RunSketch whose scalar fields are set.
class SketchBuilder {
 public:
  explicit SketchBuilder(RunSketch* sketch);

  // In hash order. `hash_prefix` has the top 40 bits of the record's rest, lower bits are ignored.
  void add(Hash hash_prefix) {
    const uint64_t fingerprint = hash_prefix >> shift_;
    const uint64_t bit = (fingerprint >> kRemainderBits) + added_;
    buckets_[bit / 64] |= uint64_t{1} << bit % 64;
    remainders_[added_++] = static_cast<uint8_t>(fingerprint);
  }
  // In a variable run, after add: the run's block in which the record's last byte lies.
  void add_end(uint32_t end_block) {
    const uint64_t bit = uint64_t{end_block} + added_ - 1;
    ends_[bit / 64] |= uint64_t{1} << bit % 64;
  }

 private:
  uint64_t* buckets_;
  uint64_t* ends_;
  uint8_t* remainders_;
  uint32_t shift_;
  uint64_t added_ = 0;
};

}  // namespace swale::run
