#include "run/slice_search.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/coding.h"
#include "base/cpu.h"
#include "run/bits.h"
#include "run/format.h"

namespace swale::run {
namespace {

struct CountPortable {
  static uint32_t ones(uint64_t word) { return count_ones(word); }
};
struct CountByInstruction {  // becomes one where the calling function's target has it
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

// How many ones stand in a row from `bit` on, at most `limit`.
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

// Whether one of the `count` remainders is `wanted`; true also if it would take a closer look to say.
[[gnu::always_inline]] inline bool may_agree(const char* remainders, uint32_t count, uint8_t wanted,
                                             const char* end) {
  if (count == 0) return false;
  if (count > 8 || end - remainders < 8) [[unlikely]]
    return true;
  uint64_t word;
  std::memcpy(&word, remainders, 8);
  word ^= wanted * kByteOnes;  // an equal byte becomes zero
  const uint64_t zeros = (word - kByteOnes) & ~word & kByteHighs;
  return (zeros & (~uint64_t{0} >> (64 - 8 * count))) != 0;
}

}  // namespace

PieceShape uniform_piece_shape(const char* header) {
  const uint32_t word = get_u32(header + offsetof(UniformPieceHeader, records_bucket_bits));
  return {.records = word & 0xffffff, .end_bits = 0, .bucket_bits = static_cast<uint8_t>(word >> 24)};
}

PieceShape mixed_piece_shape(const char* bytes) {
  const auto header = get_fixed<MixedPieceHeader>(bytes);
  const uint32_t records = header.records_bucket_bits & 0xffffff;
  return {.records = records,
          .end_bits = header.key_bytes == 0 ? records + header.value_bytes : 0,
          .bucket_bits = static_cast<uint8_t>(header.records_bucket_bits >> 24)};
}

SliceSearch::SliceSearch(const SlicePieces& pieces, std::span<const Hash> rests)
    : next_(cpu_has_popcnt() ? search_popcnt : search_portable), pieces_(pieces), rests_(rests) {}

void SliceSearch::use_portable() { next_ = search_portable; }

template <class CountOnes>
[[gnu::always_inline]] inline size_t SliceSearch::search(std::span<SliceMatch> out) {
  const size_t header_bytes = pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  size_t filled = 0;
  for (; pieces_.count > 0; --pieces_.count) {
    const PieceShape shape =
        pieces_.uniform ? uniform_piece_shape(pieces_.headers) : mixed_piece_shape(pieces_.headers);
    const char* const buckets = pieces_.arrays;
    const char* const ends = buckets + shape.bucket_bytes();
    const uint64_t array_bits = shape.bucket_array_bits();
    const uint32_t shift = 64 - pieces_.slice_bits - shape.bucket_bits - kRemainderBits;
    const uint64_t bucket_mask = (uint64_t{1} << shape.bucket_bits) - 1;
    uint64_t word_bit = 0;  // the words before it
    uint64_t zeros = 0;     // have so many zeros: buckets that end there
    for (; hash_ < rests_.size(); ++hash_) {
      const Hash fingerprint = rests_[hash_] >> shift;
      const auto wanted = static_cast<uint8_t>(fingerprint);
      if (index_ == bucket_end_) {  // else the search goes on within a bucket
        const uint64_t bucket = fingerprint >> kRemainderBits & bucket_mask;
        if (bucket <= zeros) word_bit = zeros = 0;
        uint64_t bit = 0;
        if (bucket > 0) {
          uint64_t word = ~load_word(buckets + word_bit / 8, pieces_.end);
          uint64_t count = CountOnes::ones(word);
          while (zeros + count < bucket && word_bit + 64 < array_bits) {
            zeros += count;
            word_bit += 64;
            word = ~load_word(buckets + word_bit / 8, pieces_.end);
            count = CountOnes::ones(word);
          }
          bit = zeros + count < bucket
                    ? array_bits
                    : word_bit + select_one(word, static_cast<uint32_t>(bucket - zeros - 1)) + 1;
        }
        index_ = static_cast<uint32_t>(std::min<uint64_t>(bit - bucket, shape.records));
        const uint64_t row = load_word(buckets + bit / 8, pieces_.end) >> bit % 8;
        auto ones = static_cast<uint32_t>(std::countr_one(row));
        if (ones > 48) [[unlikely]]
          ones = long_row_of_ones(buckets, bit, shape.records, pieces_.end);
        bucket_end_ = std::min(index_ + ones, shape.records);
        if (!may_agree(pieces_.remainders + index_, bucket_end_ - index_, wanted, pieces_.end)) [[likely]] {
          index_ = bucket_end_;
          continue;
        }
      }
      for (; index_ < bucket_end_; ++index_) {
        if (static_cast<uint8_t>(pieces_.remainders[index_]) != wanted) continue;
        if (filled == out.size()) return filled;
        out[filled++] = {pieces_.headers, ends, index_, hash_};
      }
    }
    hash_ = 0;
    pieces_.headers += header_bytes;
    pieces_.arrays = ends + shape.end_bytes();
    pieces_.remainders += shape.records;
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
