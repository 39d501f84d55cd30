// Filter pieces: the part of one run in one slice of a segment with filters: header, Bloom filter, fences.
// The alternative to sketches (docs/design/benchmarks.md).
//
// A fence is the hash of the record that owns the first byte of a block. Records are in hash order, so the
// fences tell the range of blocks in which all records with a hash lie. Only reading these blocks shows which
// records have the key.
//
// Format: slices, strides and overflows are those of all segments (docs/formats/partition.md). A slice is
//   SliceHeader, FilterPieceHeader{runs}, (filter, fences){runs}
// With the index `papers` a segment has one run and one slice. filter: bloom.h. A fence is a u32 for each of
// the blocks `block` + 1, `block` + 2, ...: the top 32 bits of the rest of the record that the block's first
// byte of records belongs to. Records with the rest r are in the blocks from `block` + (fences below the top
// 32 bits of r) to `block` + (fences not above them).
// Threads: free functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/hash.h"
#include "run/bloom.h"
#include "run/format.h"
#include "run/sketch.h"

namespace swale::run {

// ---- writing ----

// Stands for the records ordinal..ordinal+records-1 of a run whose sketch has tails.
struct FilterPieceSource {
  const RunSketch* run = nullptr;
  uint32_t run_block = 0;  // relative to the segment's data_block
  uint64_t ordinal = 0;
  uint32_t records = 0;
  uint64_t bucket_bit = 0;  // of the first record, in run->buckets
  uint64_t end_bit = 0;     // likewise in run->ends, if it has any
  uint32_t end_bits = 0;

  uint32_t fences() const;
  size_t bytes(const BloomShape& shape) const {  // besides the header
    return shape.bytes(records) + sizeof(uint32_t) * size_t{fences()};
  }
  // Both return the end of the written bytes.
  char* put_header(char* out) const;
  char* put(const BloomShape& shape, char* out) const;
};

// ---- reading ----

// A piece in a slice whose lengths have been checked.
class FilterPiece {
 public:
  FilterPiece(const BloomShape& shape, const char* header, const char* body);

  const FilterPieceHeader& header() const { return header_; }
  size_t body_bytes() const { return filter_bytes_ + sizeof(uint32_t) * size_t{header_.fences}; }

  bool may_have(Hash rest) const {
    return header_.records > 0 && BloomProbe(shape_, rest).may_be_in(body_, filter_bytes_);
  }
  // The blocks in which records with this hash may lie, relative to header().block. last >= first.
  struct Blocks {
    uint32_t first;
    uint32_t last;
  };
  Blocks blocks_of(Hash rest) const;

 private:
  uint32_t fences_up_to(uint32_t prefix, bool inclusive) const;

  BloomShape shape_;
  FilterPieceHeader header_;
  const char* body_;
  size_t filter_bytes_;
};

}  // namespace swale::run
