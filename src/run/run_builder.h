// RunBuilder: turns a full memtable into the blocks of one run. A passive generator: the owner reserves
// block_count() blocks of the data log and gets them buffer by buffer, in order.
//
//   sort entries (a bin of the memtable at a time) ─► gather records into payloads ─► trailer, crc32c ─►
//   whole blocks
//
// Sketch and digest are computed in the same pass, as records are gathered.
// Threads: one at a time; uses only its memtable and scratch, which must outlive it.
// Format: docs/formats/partition.md. A run is uniform if all its records have one size and rows of that size
//   leave at most kUniformWasteBytesMax of a block empty; otherwise variable.
// Limits: 1..kRunRecordsMax records, and so at most about 4,250 blocks from a 16 MiB arena.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "run/format.h"
#include "run/memtable.h"
#include "run/run_output.h"
#include "run/run_sort.h"
#include "run/sketch.h"

namespace swale::run {

// The least bytes of records in each block except a run's first and last.
inline constexpr uint32_t kRunPayloadBytesMin = static_cast<uint32_t>(kPayloadBytes) - kUniformWasteBytesMax;

class RunBuilder final : public RunOutput {
 public:
  // Requires a memtable that is not empty, scratch.records_max() >= memtable.count() and
  // arena.fits(sketch_bytes(memtable)).
  RunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena,
             const RunPlacement& placement);

  // The number of blocks of a memtable's run, needed before its builder exists.
  static uint32_t block_count(const Memtable& memtable);
  // The bytes of arena that its sketch will need.
  static size_t sketch_bytes(const Memtable& memtable, bool with_tails = false);
  using RunOutput::block_count;

  size_t fill(MutableBytes out) override;

 private:
  void fill_uniform(char* block);
  void fill_variable(char* block);
  void begin_record(size_t at);

  const Memtable& memtable_;
  RunScratch& scratch_;
  SketchBuilder sketch_builder_;
  std::optional<EntrySorter> sorter_;  // from the first fill on
  uint32_t next_record_ = 0;
  // Variable runs: the unwritten part of the last record begun: its sizes and its row.
  std::array<Bytes, 2> unfinished_;
  char sizes_[kRecordHeaderBytesMax];
};

}  // namespace swale::run
