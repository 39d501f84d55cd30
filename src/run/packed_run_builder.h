// PackedRunBuilder: turns a full memtable into the blocks of one packed run: one stream of records in hash
// order, cut into pieces that fill a block each when compressed.
//
//   worth_packing(memtable) ─► pack(): sort ─► gather ─► cut, compress ─► blocks in memory ─► place() ─►
//   fill()
//
// The number of blocks of a run, and so its place in the data log, is known only when all pieces are
// compressed. So the blocks wait in memory (`blocks`, packed_bytes_max of the memtable), and fill seals and
// copies them. The builder finds the length of a piece by trial: it expects the next piece to compress like
// the last ones; one or two trials come within 3 % of the best (docs/design/run-format.md, "Compression").
// Threads: one at a time.
// Format: docs/formats/partition.md, "Packed".
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/codec.h"
#include "run/packed_block.h"
#include "run/run_output.h"
#include "run/run_sort.h"

namespace swale::run {

// The most blocks that the memtable's packed run may take.
constexpr uint32_t packed_blocks_max(size_t encoded_bytes) {
  return static_cast<uint32_t>((encoded_bytes + sizeof(RunHeader) + kPackedBytesMax - 1) / kPackedBytesMax);
}
constexpr size_t packed_bytes_max(size_t encoded_bytes) {
  return packed_blocks_max(encoded_bytes) * kBlockBytes;
}

// Whether compression saves at least 3 % of the run's blocks, judged by a sample of 64 KiB from all over the
// memtable.
// The sample is representative: the order is that of hashes, so all parts of a run are alike.
bool worth_packing(const Memtable& memtable, RunScratch& scratch, Compressor& compressor);

class PackedRunBuilder final : public RunOutput {
 public:
  // Uses only with_tails of `placement`; place() sets the rest. Requires a memtable that is not empty,
  // scratch for its records, arena.fits(sketch_bytes(…)) and blocks.size() >=
  // packed_bytes_max(memtable.encoded_bytes()).
  PackedRunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena, Compressor& compressor,
                   MutableBytes blocks, const RunPlacement& placement);

  static size_t sketch_bytes(const Memtable& memtable, bool with_tails);

  // Does all the work, into memory. Then call place, then fill.
  void pack();
  uint32_t packed_blocks() const { return packed_blocks_; }
  void place(const RunPlacement& placement) { RunOutput::place(packed_blocks_, placement); }
  size_t fill(MutableBytes out) override;

 private:
  static constexpr size_t kWindowBytes = 4 * kPieceBytesMax + 2 * kEncodedRecordBytesMax;

  struct End {
    size_t at;
    uint64_t entry;
  };
  struct Piece {
    size_t bytes;   // of the stream
    size_t stored;  // 0: it does not fit
  };

  void gather();
  size_t cut(size_t bytes) const;
  Piece try_piece(size_t bytes, size_t space, MutableBytes out);
  void pack_block(char* block);
  void finish_piece(char* block, size_t bytes);
  Bytes window() const { return {window_.data() + window_front_, window_.size() - window_front_}; }

  const Memtable& memtable_;
  Compressor& compressor_;
  const MutableBytes blocks_;
  const uint32_t row_bytes_;  // of an encoded record, if all records have one size
  SketchBuilder sketch_builder_;
  EntrySorter sorter_;
  std::vector<char> window_;  // the stream from window_front_ on has not been packed
  size_t window_front_ = 0;
  std::vector<End> ends_;  // of the records in window_, valid from first_end_ on
  size_t first_end_ = 0;
  std::vector<char> columns_;
  std::vector<char> spare_;
  double expected_ratio_ = 1.2;
  uint32_t gathered_ = 0;
  uint32_t packed_records_ = 0;
  uint32_t packed_blocks_ = 0;
  bool in_record_ = false;  // the window begins inside a record
};

}  // namespace swale::run
