// Slice: the reader's side of a segment: where in the index log the answer for a hash lies, and what it says.
//
//   locate_slice ─► [read] ─► Slice::open ─► [overflow() ─► read ─► attach_overflow] ─► candidates
//
// Every candidate names the blocks to read; RecordMatch (block.h) decides whether the record has the key. A
// candidate is false with probability load / 256, about 0.5 %, per run.
// Threads: a Slice is immutable once complete. Without an overflow it is a view: the bytes must outlive it.
// Errors: kCorruption that names the file and offset. Bytes that pass the checksum are still never trusted
//   for memory safety: all lengths and blocks are checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/bits.h"
#include "run/format.h"

namespace swale::run {

// A record of 16,644 bytes spans at most this many blocks.
inline constexpr uint32_t kCandidateBlocksMax = 6;

// A range of the index log.
struct SliceLocation {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t slice = 0;

  bool operator==(const SliceLocation&) const = default;
};

// Where a record that may have the key is stored.
struct Candidate {
  uint64_t block = 0;        // first to read, in the data log
  uint32_t block_count = 1;  // 1 for uniform runs; at most kCandidateBlocksMax
  uint32_t slot = 0;         // uniform: row in the block; variable: ordinal in the run
  uint32_t value_bytes = 0;  // uniform
  uint8_t key_bytes = 0;     // uniform; 0: variable

  bool variable() const { return key_bytes == 0; }
};

// None: the segment has no records (or is no segment of sketches). `rest` is what choose(…, ways) left.
std::optional<SliceLocation> locate_slice(const SegmentRecord& segment, Hash rest);
SliceLocation slice_location(const SegmentRecord& segment, uint32_t slice);  // requires slice < 2^slice_bits

class Slice {
 public:
  // `bytes`: what is at the location, all of it. The segment comes from a decoded footer. `path` names the
  // index log and must outlive the slice.
  Slice(Slice&&) = default;
  Slice& operator=(Slice&&) = default;

  static Result<Slice> open(const SegmentRecord& segment, uint32_t partition, const SliceLocation& location,
                            Bytes bytes, std::string_view path);

  // Where the rest of the slice lies, if it is longer than the stride; candidates needs it attached first.
  std::optional<SliceLocation> overflow() const;
  Status attach_overflow(Bytes bytes);
  bool complete() const { return total_bytes_ == bytes_.size(); }

  uint64_t records() const;  // of all pieces
  uint32_t piece_count() const { return static_cast<uint32_t>(pieces_.size()); }

  // Calls fn(const Candidate&) for every record whose fingerprint agrees, run by run in the order they were
  // written, and by ordinal within. Requires complete() and a rest of this slice. kCorruption for blocks
  // outside the epoch.
  template <class Fn>
  Status candidates(Hash rest, Fn&& fn) const {
    for (const Piece& piece : pieces_) {
      const Matches matches = find_bucket(piece, rest);
      EndWalk walk;
      for (uint32_t i = matches.begin; i < matches.end; ++i) {
        if (static_cast<uint8_t>(piece.remainders[i]) != matches.remainder) continue;
        Candidate candidate;
        if (!locate(piece, i, &walk, &candidate)) return outside_epoch(piece, i);
        fn(static_cast<const Candidate&>(candidate));
      }
    }
    return {};
  }

 private:
  struct Piece {
    uint64_t block;      // absolute. Uniform: rows count from here. Variable: ends count from here
    uint64_t first_row;  // uniform: row number of the first record, counted from `block`
    uint32_t ordinal;    // variable: of the first record in its run
    uint32_t records;
    uint32_t value_bytes;
    uint32_t rows_per_block;
    uint8_t key_bytes;  // 0: variable
    uint8_t bucket_bits;
    BitSpan buckets;
    BitSpan ends;
    const char* remainders;
  };
  // How far the search through `ends` has come: candidates of one bucket ask in ascending order.
  struct EndWalk {
    uint32_t index = 0;
    uint64_t bit = 0;
  };
  struct Matches {
    uint32_t begin;
    uint32_t end;
    uint8_t remainder;
  };

  Slice(const SegmentRecord& segment, uint32_t partition, const SliceLocation& location,
        std::string_view path)
      : segment_(segment), seed_(segment_seed(partition, segment)), location_(location), path_(path) {}

  Status parse();
  bool parse_uniform_header(const char* header, Piece* piece) const;
  bool parse_mixed_header(const char* header, Piece* piece, uint32_t* end_bits) const;
  Matches find_bucket(const Piece& piece, Hash rest) const;
  bool locate(const Piece& piece, uint32_t index, EndWalk* walk, Candidate* candidate) const;
  Status outside_epoch(const Piece& piece, uint32_t index) const;
  Status damaged(std::string_view problem) const;

  SegmentRecord segment_;
  uint32_t seed_;
  SliceLocation location_;
  uint32_t total_bytes_ = 0;
  uint32_t overflow_unit_ = 0;
  Bytes bytes_;              // of the slice, from its header on
  std::vector<char> whole_;  // owns bytes_ once an overflow is attached
  std::string_view path_;
  std::vector<Piece> pieces_;
};

}  // namespace swale::run
