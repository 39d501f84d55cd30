// RunOutput: a run as a source of whole blocks for the data log, in order, on demand; the base of all
// builders.
//
// Threads: one at a time. Its sources (records, scratch, sketch memory, buffers) must outlive it.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "run/format.h"
#include "run/run_shape.h"
#include "run/sketch.h"

namespace swale::run {

// A run's place and its job. RunHeader explains the fields.
struct RunPlacement {
  PartitionNumber partition = {};
  BlockNumber first_block = {};
  EpochNumber epoch = {};
  uint64_t epoch_id = 0;
  uint16_t way = 0;
  uint32_t run = 0;  // number within the epoch and partition
  uint32_t ranks = 1;
  uint16_t ways = 1;
  HomeRule home = HomeRule::kHash;
  ValueRule values = ValueRule::kLarge;
  bool with_tails = false;  // of the sketch, for filters
};

class RunOutput {
 public:
  virtual ~RunOutput() = default;

  // Writes the next whole blocks into `out` (size: a multiple of 4,096, at least 4,096). Returns the bytes
  // produced; 0 at the end.
  virtual size_t fill(MutableBytes out) = 0;
  bool done() const { return next_block_ == header_.blocks; }

  uint32_t block_count() const { return header_.blocks; }
  uint32_t record_count() const { return header_.records; }
  uint64_t data_bytes() const { return header_.data_bytes; }
  // After done(): the sum of record_digest over all records, modulo 2^64.
  uint64_t digest() const { return digest_; }
  const RunSketch& sketch() const { return sketch_; }

 protected:
  // For records of this shape; place() may set `blocks` later.
  RunOutput(const RunShape& shape, RunKind kind, uint32_t blocks, const RunPlacement& placement,
            Codec codec = Codec::kNone);
  // Sets the run's place, if it was not known at construction.
  void place(uint32_t blocks, const RunPlacement& placement);

  BlockNumber first_block_;
  uint32_t seed_;
  RunHeader header_;
  RunSketch sketch_;
  uint64_t digest_ = 0;
  uint32_t next_block_ = 0;
};

}  // namespace swale::run
