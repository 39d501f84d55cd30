#include "run/slice_search.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bits.h"
#include "base/cpu.h"

namespace swale::run {
namespace {

struct CountPortable {
  static uint32_t ones(uint64_t word) { return count_ones(word); }
};
struct CountByInstruction {  // one instruction if the calling function's target has it
  [[gnu::always_inline]] static uint32_t ones(uint64_t word) {
    return static_cast<uint32_t>(__builtin_popcountll(word));
  }
};

// Eight bytes from `at` on, zeros past `end`.
[[gnu::always_inline]] inline uint64_t load_word(const char* at, const char* end) {
  uint64_t word = 0;
  if (end - at >= 8) [[likely]] {
    std::memcpy(&word, at, 8);
  } else if (at < end) {
    std::memcpy(&word, at, static_cast<size_t>(end - at));
  }
  return word;
}

// The number of consecutive ones from `bit` on, at most `limit`.
uint32_t long_row_of_ones(const char* buckets, uint64_t bit, uint32_t limit, const char* end) {
  uint64_t ones = 0;
  while (ones < limit) {
    const uint64_t at = bit + ones;
    const auto here = static_cast<uint32_t>(std::countr_one(load_word(buckets + at / 8, end) >> at % 8));
    ones += here;
    if (at % 8 + here < 64) break;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(ones, limit));
}

// Whether one of the `count` remainders is `wanted`; may return true when a closer look is needed to decide.
[[gnu::always_inline]] inline bool may_agree(const char* remainders, uint32_t count, uint8_t wanted,
                                             const char* end) {
  if (count >= 8 || end - remainders < 8) [[unlikely]]
    return true;
  uint64_t word;
  std::memcpy(&word, remainders, 8);
  word ^= wanted * kByteOnes;  // an equal byte becomes zero
  const uint64_t zeros = (word - kByteOnes) & ~word & kByteHighs;
  return (zeros & ((uint64_t{1} << 8 * count) - 1)) != 0;
}

// The position of the walk through a piece's buckets.
struct BucketWalk {
  uint64_t bit = 0;    // a multiple of 64
  uint64_t zeros = 0;  // in the words before it
};

// The bucket's begin: after as many zeros as there are buckets before it. At most array_bits.
template <class CountOnes, bool kNearEnd>
[[gnu::always_inline]] inline uint64_t begin_of_bucket(const char* buckets, const char* end,
                                                       uint64_t array_bits, uint64_t bucket,
                                                       BucketWalk* walk) {
  if (bucket == 0) return 0;
  if (bucket <= walk->zeros) *walk = {};
  uint64_t bit = walk->bit;
  uint64_t zeros = walk->zeros;
  uint64_t word;
  uint64_t count;
  for (;; bit += 64, zeros += count) {
    if constexpr (kNearEnd) {
      word = ~load_word(buckets + bit / 8, end);
    } else {
      word = ~get_u64(buckets + bit / 8);
    }
    count = CountOnes::ones(word);
    if (zeros + count >= bucket) break;
    if (bit + 64 >= array_bits) return array_bits;
  }
  *walk = {bit, zeros};
  return bit + select_one(word, static_cast<uint32_t>(bucket - zeros - 1)) + 1;
}

}  // namespace

SliceSearch::SliceSearch(const SlicePieces& pieces, std::span<const Hash> rests)
    : next_(cpu_has_popcnt() ? search_popcnt : search_portable), pieces_(pieces), rests_(rests) {}

void SliceSearch::use_portable() { next_ = search_portable; }

// Searches the first of pieces_ for all hashes from hash_ on. If `out` fills up first, hash_ stays below
// their number.
template <class CountOnes>
[[gnu::always_inline]] inline size_t SliceSearch::search_piece(const PieceShape& shape,
                                                               std::span<SliceMatch> out, size_t filled) {
  const char* const buckets = pieces_.arrays;
  const char* const ends = buckets + shape.bucket_bytes();
  const char* const remainders = pieces_.remainders;
  const char* const end = pieces_.end;
  const uint64_t array_bits = shape.bucket_array_bits();
  const bool near_end = end - ends < 8;
  const uint32_t shift = 64 - pieces_.slice_bits - shape.bucket_bits - kRemainderBits;
  const uint64_t bucket_mask = (uint64_t{1} << shape.bucket_bits) - 1;
  const size_t hash_count = rests_.size();
  BucketWalk walk;
  for (uint32_t hash = hash_; hash < hash_count; ++hash) {
    const Hash fingerprint = rests_[hash] >> shift;
    const auto wanted = static_cast<uint8_t>(fingerprint);
    uint32_t index = index_;
    uint32_t bucket_end = bucket_end_;
    if (index == bucket_end) {  // else the search goes on within a bucket
      const uint64_t bucket = fingerprint >> kRemainderBits & bucket_mask;
      const uint64_t bit = near_end
                               ? begin_of_bucket<CountOnes, true>(buckets, end, array_bits, bucket, &walk)
                               : begin_of_bucket<CountOnes, false>(buckets, end, array_bits, bucket, &walk);
      index = static_cast<uint32_t>(std::min<uint64_t>(bit - bucket, shape.records));
      auto ones = static_cast<uint32_t>(std::countr_one(load_word(buckets + bit / 8, end) >> bit % 8));
      if (ones > 48) [[unlikely]]
        ones = long_row_of_ones(buckets, bit, shape.records, end);
      bucket_end = std::min(index + ones, shape.records);
      if (!may_agree(remainders + index, bucket_end - index, wanted, end)) [[likely]]
        continue;
    }
    for (; index < bucket_end; ++index) {
      if (static_cast<uint8_t>(remainders[index]) != wanted) continue;
      if (filled == out.size()) {
        hash_ = hash;
        index_ = index;
        bucket_end_ = bucket_end;
        return filled;
      }
      out[filled++] = {pieces_.headers, ends, index, hash};
    }
    index_ = bucket_end_ = 0;
  }
  hash_ = static_cast<uint32_t>(hash_count);
  return filled;
}

template <class CountOnes>
[[gnu::always_inline]] inline size_t SliceSearch::search(std::span<SliceMatch> out) {
  size_t filled = 0;
  while (pieces_.count > 0) {
    const PieceShape shape =
        pieces_.uniform ? uniform_piece_shape(pieces_.headers) : mixed_piece_shape(pieces_.headers);
    filled = search_piece<CountOnes>(shape, out, filled);
    if (hash_ < rests_.size()) break;
    hash_ = 0;
    pieces_.headers += pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
    pieces_.arrays += shape.bucket_bytes() + shape.end_bytes();
    pieces_.remainders += shape.records;
    --pieces_.count;
  }
  return filled;
}

size_t SliceSearch::search_portable(SliceSearch& search, std::span<SliceMatch> out) {
  return search.search<CountPortable>(out);
}

SWALE_TARGET_POPCNT size_t SliceSearch::search_popcnt(SliceSearch& search, std::span<SliceMatch> out) {
  return search.search<CountByInstruction>(out);
}

}  // namespace swale::run
