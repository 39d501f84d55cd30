// RunBuilder: turns a full memtable into the blocks of one run. A passive generator: the owner reserves
// block_count() blocks of the data log and asks for them buffer by buffer, in order.
//
//   sort entries (a bin of the memtable at a time) ─► gather records into payloads ─► trailer, crc32c ─► whole blocks
//
// Sketch and digest are made from the records as they are gathered, in the same pass.
// Threads: one at a time; uses only the memtable and the scratch that it was given, which must outlive it.
// Format: docs/formats/partition.md. A run is uniform if all its records have one size and rows of that size
//   leave at most kUniformWasteBytesMax of a block empty; otherwise variable.
// Limits: 1..kRunRecordsMax records, and so at most some 4,250 blocks from a 16 MiB arena.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "run/format.h"
#include "run/memtable.h"
#include "run/run_sort.h"
#include "run/sketch.h"

namespace swale::run {

// Above this, headers per record cost less than what whole rows leave empty at the end of each block.
inline constexpr uint32_t kUniformWasteBytesMax = 128;
// So much of each block but a run's first and last is records.
inline constexpr uint32_t kRunPayloadBytesMin = static_cast<uint32_t>(kPayloadBytes) - kUniformWasteBytesMax;

struct RunPlacement {
  uint32_t partition = 0;
  uint64_t first_block = 0;
  uint32_t epoch = 0;
  uint64_t epoch_id = 0;
  uint16_t way = 0;
  uint32_t run = 0;  // number within the epoch and partition
};

class RunBuilder {
 public:
  // Requires a memtable that is not empty, scratch.records_max() >= memtable.count() and
  // arena.fits(sketch_bytes(memtable)).
  RunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena,
             const RunPlacement& placement);

  // The blocks of a memtable's run, before there is a builder for it.
  static uint32_t block_count(const Memtable& memtable);
  // What its sketch will take of an arena.
  static size_t sketch_bytes(const Memtable& memtable);
  uint32_t block_count() const { return header_.blocks; }

  // Writes the next whole blocks into `out` (size: a multiple of 4,096, at least 4,096). Returns the bytes
  // produced; 0 at the end.
  size_t fill(MutableBytes out);
  bool done() const { return next_block_ == header_.blocks; }

  uint32_t record_count() const { return header_.records; }
  uint64_t data_bytes() const { return header_.data_bytes; }
  // Once done(): sum of record_digest over all records, modulo 2^64.
  uint64_t digest() const { return digest_; }
  const RunSketch& sketch() const { return sketch_; }

 private:
  void fill_uniform(char* block);
  void fill_variable(char* block);
  void begin_record(size_t at);

  const Memtable& memtable_;
  RunScratch& scratch_;
  const uint64_t first_block_;
  const uint32_t seed_;
  RunHeader header_;
  RunSketch sketch_;
  SketchBuilder sketch_builder_;
  std::optional<EntrySorter> sorter_;  // from the first fill on
  uint64_t digest_ = 0;
  uint32_t next_block_ = 0;
  uint32_t next_record_ = 0;
  // Variable: what is still to be written of the record that was begun last, its sizes and its row.
  std::array<Bytes, 2> unfinished_;
  char sizes_[kRecordHeaderBytesMax];
};

}  // namespace swale::run
