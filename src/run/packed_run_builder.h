// PackedRunBuilder: turns a full memtable into the blocks of one packed run: the records in hash order as one stream,
// cut into pieces that, compressed, fill a block each.
//
//   worth_packing(memtable) ─► pack(): sort ─► gather ─► cut, compress ─► blocks in memory ─► place() ─► fill()
//
// How many blocks a run takes is known only when all is compressed, and where it stands in the data log only then. So
// the blocks wait in memory (`blocks`, packed_bytes_max of the memtable), and fill seals and copies them.
// How many bytes of the stream fit a block is found by trying: the next piece is expected to compress as the last ones
// did, and one or two tries land within 3 % (docs/design/run-format.md, "Compression").
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

// Whether compressing saves at least 3 % of the blocks that the run would take otherwise, by a sample of 64 KiB from
// all over the memtable: keys are hashed, so no part of a run is unlike the others.
bool worth_packing(const Memtable& memtable, RunScratch& scratch, Compressor& compressor);

class PackedRunBuilder final : public RunOutput {
 public:
  // Of `placement`, only what place() does not say again: with_tails. Requires a memtable that is not empty, scratch for
  // its records, arena.fits(sketch_bytes(…)) and blocks.size() >= packed_bytes_max(memtable.encoded_bytes()).
  PackedRunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena, Compressor& compressor,
                   MutableBytes blocks, const RunPlacement& placement);

  static size_t sketch_bytes(const Memtable& memtable, bool with_tails);

  // All the work, into memory. Then place, then fill.
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
  const uint32_t row_bytes_;  // encoded, if all records have one size
  SketchBuilder sketch_builder_;
  EntrySorter sorter_;
  std::vector<char> window_;  // the stream from window_front_ on has not been packed
  size_t window_front_ = 0;
  std::vector<End> ends_;  // in window_, of records that were gathered, from first_end_ on
  size_t first_end_ = 0;
  std::vector<char> columns_;
  std::vector<char> spare_;
  double expected_ratio_ = 1.2;
  uint32_t gathered_ = 0;
  uint32_t packed_records_ = 0;
  uint32_t packed_blocks_ = 0;
  bool in_record_ = false;  // the window begins within a record
};

}  // namespace swale::run
