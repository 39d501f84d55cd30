// RunOutput: a run on its way into the data log, whichever way it is made: whole blocks, in order, on demand.
//
// Threads: one at a time. What it takes from (memtable, scratch, sketch memory, buffers) must outlive it.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "run/format.h"
#include "run/memtable.h"
#include "run/sketch.h"

namespace swale::run {

// Where a run stands, and of which job it is. RunHeader says what the fields mean.
struct RunPlacement {
  uint32_t partition = 0;
  uint64_t first_block = 0;
  uint32_t epoch = 0;
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
  // Once done(): sum of record_digest over all records, modulo 2^64.
  uint64_t digest() const { return digest_; }
  const RunSketch& sketch() const { return sketch_; }

 protected:
  // Of the memtable's records; `blocks` may be said later, by place.
  RunOutput(const Memtable& memtable, RunKind kind, uint32_t blocks, const RunPlacement& placement,
            Codec codec = Codec::kNone);
  // Where the run will stand, if that was not known when it was begun.
  void place(uint32_t blocks, const RunPlacement& placement);

  uint64_t first_block_;
  uint32_t seed_;
  RunHeader header_;
  RunSketch sketch_;
  uint64_t digest_ = 0;
  uint32_t next_block_ = 0;
};

}  // namespace swale::run
