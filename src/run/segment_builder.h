// SegmentBuilder: transposes the sketches of n runs into one segment of the index log: the pieces of all runs
// for one slice of hash space lie together, so that a query reads one short range per epoch, whatever the
// number of runs.
//
// A passive generator like RunBuilder. The first walk over the sketches (in the constructor) measures the
// slices and decides the stride; fill walks again and writes; if slices exceed the stride, a third walk
// writes their overflows.
// Threads: one at a time; the sketches must outlive it and are not changed.
// Format: docs/formats/partition.md, "Segment".
// Memory: 4 bytes per slice, 64 per run, and one slice (the longest: with one hot key nearly all remainders).
// Limits: runs <= 2^20; records of one piece < 2^24.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "run/bloom.h"
#include "run/filter_pieces.h"
#include "run/format.h"
#include "run/layout.h"
#include "run/sketch.h"

namespace swale::run {

struct SegmentParams {
  PartitionNumber partition = {};
  EpochNumber epoch = {};
  uint64_t epoch_id = 0;
  uint16_t way = 0;
  uint16_t ways = 1;
  BlockNumber data_block = {};  // first block of the epoch in the data log
  uint32_t data_blocks = 0;     // blocks of the epoch so far; all runs lie within
  Layout layout = {};           // kPapers: one run at a time
};

// How many of the `runs` waiting sketches go into the next segment.
constexpr size_t runs_of_segment(size_t runs, const Layout& layout) {
  return layout.index == IndexKind::kPapers ? std::min<size_t>(runs, 1) : runs;
}

class SegmentBuilder {
 public:
  // Without sketches: the segment of an epoch without records; it has no bytes, only a footer record.
  SegmentBuilder(std::span<const RunSketch> sketches, const SegmentParams& params);

  uint64_t size_bytes() const { return segment_bytes(segment_); }

  // Writes the next bytes into `out` (size: a multiple of 4,096, at least 4,096). Returns the bytes produced:
  // all of `out`, or up to the segment's end; 0 at the end.
  size_t fill(MutableBytes out);
  bool done() const { return produced_bytes_ == size_bytes(); }

  // The segment's record for the footer; `index_offset` is where it was written (segment_offset).
  SegmentRecord record(uint64_t index_offset) const;

 private:
  // Walks along one run's sketch, slice by slice.
  struct RunWalk {
    const RunSketch* sketch;
    uint32_t bucket_bits;  // as written; for short runs fewer than the sketch's
    uint64_t bit = 0;      // in buckets
    uint64_t ordinal = 0;
    uint64_t end_bit = 0;  // in ends
    // The current piece, after step.
    uint64_t piece_bit = 0;
    uint64_t piece_end_bit = 0;
    uint32_t piece_records = 0;
    uint32_t piece_end_bits = 0;

    void step(uint32_t slice_bits);
    bool variable() const { return is_stream(sketch->kind); }
  };
  enum class Phase { kSlices, kOverflows, kDone };

  void choose_form();
  void choose_filters();
  void measure();
  void choose_stride(const std::vector<uint32_t>& lengths);
  void restart_walks();
  uint32_t slice_bytes() const;  // of the walks' current pieces
  size_t bucket_bytes(const RunWalk& walk) const;
  void build_slice(uint32_t slice);
  void put_pieces(uint32_t slice, uint32_t total_bytes);
  FilterPieceSource filter_piece(const RunWalk& walk) const;
  void put_filter_pieces(char* out) const;
  char* put_piece_header(const RunWalk& walk, char* out) const;
  void put_fingerprints(const RunWalk& walk, uint32_t slice, char* bucket_array, char* remainders) const;
  bool next_chunk();  // sets chunk_ to the next bytes of the segment

  SegmentParams params_;
  SegmentRecord segment_;
  uint32_t seed_ = 0;
  BloomShape filters_;  // of segments with filters
  std::vector<RunWalk> walks_;
  std::vector<char> buffer_;  // one slice
  Phase phase_ = Phase::kSlices;
  uint32_t next_slice_ = 0;
  uint32_t next_overflow_unit_ = 0;
  uint64_t produced_bytes_ = 0;
  Bytes chunk_;  // produced, not yet returned; lies in buffer_
};

}  // namespace swale::run
