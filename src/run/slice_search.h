// SliceSearch: finds the records in a slice whose fingerprints agree with those of given hashes.
//
// It searches piece by piece and, within a piece, hash by hash. If the hashes ascend, it walks a piece's
// buckets once for all of them, and the matches come in the order of the data log.
//
// Threads: one at a time. Allocates nothing.
// Bounds: reads nothing outside the slice's bytes, and every match names a record of its piece, whatever the
//   arrays hold; the lengths must have been checked (Slice::open).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/coding.h"
#include "base/hash.h"
#include "run/format.h"

namespace swale::run {

// The places of the parts of a whole slice.
struct SlicePieces {
  const char* headers = nullptr;     // one per piece
  const char* arrays = nullptr;      // per piece: buckets, and ends if it is variable
  const char* remainders = nullptr;  // one byte per record
  const char* end = nullptr;
  uint32_t count = 0;
  uint32_t records = 0;
  uint8_t slice_bits = 0;
  bool uniform = false;
};

struct SliceMatch {
  const char* header;  // of the piece
  const char* ends;    // of the piece, if it is variable
  uint32_t index;      // of the record in the piece
  uint32_t hash;       // index of the hash
};

// The sizes of a piece's arrays, from its header.
struct PieceShape {
  uint32_t records;
  uint32_t end_bits;  // variable
  uint8_t bucket_bits;

  uint64_t bucket_array_bits() const { return records + (uint64_t{1} << bucket_bits); }
  uint64_t bucket_bytes() const { return (bucket_array_bits() + 7) / 8; }
  uint64_t end_bytes() const { return (uint64_t{end_bits} + 7) / 8; }
};
inline PieceShape uniform_piece_shape(const char* header) {
  const uint32_t word = get_u32(header + offsetof(UniformPieceHeader, records_bucket_bits));
  return {.records = word & 0xffffff, .end_bits = 0, .bucket_bits = static_cast<uint8_t>(word >> 24)};
}
inline PieceShape mixed_piece_shape(const char* bytes) {
  const auto header = get_fixed<MixedPieceHeader>(bytes);
  const uint32_t records = header.records_bucket_bits & 0xffffff;
  return {.records = records,
          .end_bits = header.key_bytes == 0 ? records + header.value_bytes : 0,
          .bucket_bits = static_cast<uint8_t>(header.records_bucket_bits >> 24)};
}

class SliceSearch {
 public:
  // Ignores the leading slice_bits of each rest, which must be those of this slice. `rests` must outlive it.
  SliceSearch(const SlicePieces& pieces, std::span<const Hash> rests);

  // Fills `out` with the next matches and returns their number; if it is less than out.size(), these are the
  // last.
  size_t next(std::span<SliceMatch> out) { return next_(*this, out); }

  // For tests: uses the version for every processor instead of the best for this one.
  void use_portable();

 private:
  template <class CountOnes>
  size_t search(std::span<SliceMatch> out);
  template <class CountOnes>
  size_t search_piece(const PieceShape& shape, std::span<SliceMatch> out, size_t filled);
  static size_t search_portable(SliceSearch& search, std::span<SliceMatch> out);
  static size_t search_popcnt(SliceSearch& search, std::span<SliceMatch> out);

  size_t (*next_)(SliceSearch&, std::span<SliceMatch>);
  SlicePieces pieces_;  // from the current piece on
  std::span<const Hash> rests_;
  uint32_t hash_ = 0;   // the next one
  uint32_t index_ = 0;  // in its bucket, if the search stopped inside one: then index_ < bucket_end_
  uint32_t bucket_end_ = 0;
};

}  // namespace swale::run
