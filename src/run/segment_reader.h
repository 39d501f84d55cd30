// Slice: the reader's view of a segment: locates the slice of a hash in the index log, and finds candidates
// in it.
//
//   locate_slice ─► [read] ─► Slice::open ─► [overflow() ─► read ─► attach_overflow] ─► candidates
//
// Every candidate names the blocks to read; RecordMatch (block.h) decides whether the record has the key. An
// absent key gets a false candidate with probability load / 256, about 0.5 %, per run.
// Threads: a Slice is immutable once complete. It is a view of the segment record and, without an overflow,
// of the
//   bytes; both must outlive it. Without an overflow it allocates nothing.
// Errors: kCorruption that names the file and offset. Bytes that pass the checksum are still not trusted for
//   memory safety: all lengths and blocks are checked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/bloom.h"
#include "run/format.h"
#include "run/slice_search.h"

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

inline constexpr uint32_t kAnySlot = 0xffffffff;

// The place of a record, or of several, that may have the key.
struct Candidate {
  BlockNumber block = {};    // first block to read, in the data log
  uint32_t block_count = 1;  // 1 for uniform runs; at most kCandidateBlocksMax
  uint32_t slot = 0;         // uniform: row in the block; variable: ordinal in the run
  uint32_t value_bytes = 0;  // uniform
  uint8_t key_bytes = 0;     // uniform; 0: variable or packed

  bool packed = false;  // blocks of a packed run

  bool variable() const { return key_bytes == 0; }
  // The candidate comes from a filter with fences, which do not know the records: any that starts in the
  // first block.
  bool any_slot() const { return slot == kAnySlot; }
};

// None: the segment has no records (or has no sketches). `rest` is the rest after choose(…, ways).
std::optional<SliceLocation> locate_slice(const SegmentRecord& segment, Hash rest);
SliceLocation slice_location(const SegmentRecord& segment, uint32_t slice);  // requires slice < 2^slice_bits

class Slice {
 public:
  Slice(Slice&&) = default;
  Slice& operator=(Slice&&) = default;

  // `bytes`: all bytes of the location. The segment must come from a decoded footer. `path` names the index
  // log and must outlive the slice.
  static Result<Slice> open(const SegmentRecord& segment, PartitionNumber partition,
                            const SliceLocation& location, Bytes bytes, std::string_view path) {
    return open_seeded(segment, segment_seed(partition, segment), location, bytes, path);
  }
  // The same for callers that keep segment_seed(partition, segment).
  static Result<Slice> open_seeded(const SegmentRecord& segment, uint32_t seed, const SliceLocation& location,
                                   Bytes bytes, std::string_view path);
  // A complete slice from bytes() of one that was opened before, whose checksums need not be computed again.
  static Result<Slice> open_verified(const SegmentRecord& segment, const SliceLocation& location, Bytes bytes,
                                     std::string_view path);

  // The location of the slice's overflow, if it is longer than the stride. Attach it before calling
  // candidates.
  std::optional<SliceLocation> overflow() const;
  Status attach_overflow(Bytes bytes);
  bool complete() const { return total_bytes_ == bytes_.size(); }
  Bytes bytes() const { return bytes_; }  // the whole slice once it is complete

  uint64_t records() const { return pieces_.records; }  // of all pieces
  uint32_t piece_count() const { return pieces_.count; }
  // The number of leading bits of a rest that a match compares, in the piece that compares most. Requires
  // complete().
  uint32_t fingerprint_bits() const;

  // Calls fn(index of the rest, const Candidate&) for every record whose fingerprint agrees with one of
  // `rests`, run by run in the order they were written. If the rests ascend, candidates within a run ascend
  // by ordinal and so by block; those of a single rest always do. Requires complete() and rests of this
  // slice. kCorruption for blocks outside the epoch.
  template <class Fn>
  Status candidates_of(std::span<const Hash> rests, Fn&& fn) const {
    if (filtered()) [[unlikely]]
      return candidates_by_filters(rests, fn);
    SliceSearch search(pieces_, rests);
    SliceMatch matches[kMatchesAtOnce];
    EndWalk walk;
    for (size_t count = kMatchesAtOnce; count == kMatchesAtOnce;) {
      count = search.next(matches);
      for (size_t i = 0; i < count; ++i) {
        Candidate candidate;
        if (!locate(matches[i], &walk, &candidate)) return outside_epoch(matches[i]);
        fn(matches[i].hash, static_cast<const Candidate&>(candidate));
      }
    }
    return {};
  }

  // The same for a single rest: fn(const Candidate&).
  template <class Fn>
  Status candidates(Hash rest, Fn&& fn) const {
    return candidates_of({&rest, 1}, [&](size_t, const Candidate& candidate) { fn(candidate); });
  }

 private:
  static constexpr size_t kMatchesAtOnce = 32;

  // The position of the search in a piece's `ends`: most matches come in ascending order.
  struct EndWalk {
    const char* ends = nullptr;
    uint32_t index = 0;
    uint64_t bit = 0;
  };

  Slice(const SegmentRecord& segment, uint32_t seed, const SliceLocation& location, std::string_view path)
      : segment_(&segment), seed_(seed), location_(location), path_(path) {}

  Status parse();
  Status check_pieces(const char* arrays);
  Status check_filter_pieces();
  BloomShape filters() const;
  Status filter_candidates(std::span<const Hash> rests,
                           const std::function<void(size_t, const Candidate&)>& fn) const;
  // Separate from candidates_of, so that it does not take registers there.
  template <class Fn>
  [[gnu::noinline]] Status candidates_by_filters(std::span<const Hash> rests, Fn&& fn) const {
    return filter_candidates(rests, std::ref(fn));
  }
  bool filtered() const { return (segment_->flags & (kBloomSegment | kBlockedBloomSegment)) != 0; }
  bool locate(const SliceMatch& match, EndWalk* walk, Candidate* candidate) const;
  bool locate_variable(const SliceMatch& match, const MixedPieceHeader& header, EndWalk* walk,
                       Candidate* candidate) const;
  Status outside_epoch(const SliceMatch& match) const;
  Status damaged(std::string_view problem) const;

  const SegmentRecord* segment_;
  uint32_t seed_;
  SliceLocation location_;
  uint32_t total_bytes_ = 0;
  uint32_t overflow_unit_ = 0;
  uint32_t rows_per_block_ = 0;  // of a uniform segment
  Bytes bytes_;                  // the slice, header included
  std::vector<char> whole_;      // owns bytes_ once an overflow is attached
  std::string_view path_;
  SlicePieces pieces_;
};

// All slices of a segment, with overflows attached, from the segment's bytes, which must outlive them.
// kCorruption also if their number of records differs from the footer's. Requires segment.runs > 0.
Result<std::vector<Slice>> open_slices(const SegmentRecord& segment, PartitionNumber partition, Bytes bytes,
                                       std::string_view path);

}  // namespace swale::run
