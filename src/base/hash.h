// Key hashing, and how successive parts of one 64-bit hash choose destination, way, slice, bucket and
// remainder.
//
// Hash "xxh3-64" (XXH3_64bits, seed 0) is part of the on-disk format: swale.json names it.
// A choice among n uses the *top* of the hash and leaves the rest: with h as a fraction in [0, 1), the
// integer part of h * n is the choice, and its fraction is the rest, again uniform. If a later choice used
// the same bits, all records of a partition would share their leading bits, which would ruin the sketch
// (docs/design/run-format.md).
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/copy.h"
#include "base/uint128.h"

namespace swale {

inline constexpr char kHashName[] = "xxh3-64";

using Hash = uint64_t;

// Inline for the length of most keys only: inline code for every length would crowd the caller's registers.
Hash hash_bytes_of_any_length(Bytes bytes);
inline Hash hash_eight_bytes(const char* bytes) { return XXH3_64bits(bytes, 8); }
inline Hash hash_bytes(Bytes bytes) {
  return bytes.size() == 8 ? hash_eight_bytes(bytes.data()) : hash_bytes_of_any_length(bytes);
}
Hash hash_bytes_seeded(Bytes bytes, uint64_t seed);

struct HashChoice {
  uint32_t index;  // in [0, n)
  Hash rest;       // uniform and independent of index
};

// Requires n >= 1.
inline HashChoice choose(Hash hash, uint32_t n) {
  const auto product = static_cast<Uint128>(hash) * n;
  return {static_cast<uint32_t>(product >> 64), static_cast<Hash>(product)};
}

namespace internal {

// The upper half of the product xor the lower half.
inline uint64_t folded_product(uint64_t a, uint64_t b) {
#if defined(__x86_64__)
  uint64_t upper = b;  // as below, where gcc would go through memory
  asm("mulq %1" : "+a"(a), "+d"(upper) : : "cc");
  return a ^ upper;
#else
  const auto wide = static_cast<Uint128>(a) * b;
  return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
#endif
}

// The digest of the i-th pair of words of a row.
inline uint64_t pair_digest(uint64_t first, uint64_t second, size_t i) {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr uint64_t kStep = 0x8bb84b93962eacc8;
  constexpr uint64_t kSecond = 0xd1b54a32d192ed03;
  return folded_product(first ^ (kFirst + i * kStep), second ^ kSecond);
}
// The same; `at` is the pair's first byte.
inline uint64_t pair_digest(const char* at, size_t i) { return pair_digest(get_u64(at), get_u64(at + 8), i); }
// Copies the pair on the way, to where its words need not be adjacent.
inline uint64_t copy_pair(char* to, const char* first_from, const char* second_from, size_t i) {
  uint64_t first = get_u64(first_from);
  uint64_t second = get_u64(second_from);
#if defined(__GNUC__)
  asm(""
      : "+r"(first),
        "+r"(second));  // else gcc loads both into a vector register, from which it must take them out
#endif
  put_u64(to, first);
  put_u64(to + 8, second);
  return pair_digest(first, second, i);
}

inline constexpr uint64_t kDigestFactor = 0x2d358dccaa6c78a5;
inline uint64_t begin_digest(size_t row_bytes, size_t key_bytes) {
  return (uint64_t{row_bytes} << 8 | key_bytes) * kDigestFactor;
}
inline uint64_t finish_digest(uint64_t sum) {
  sum ^= sum >> 32;
  sum *= kDigestFactor;
  return sum ^ sum >> 29;
}

inline constexpr size_t kPairsInLine = 8;
// `sum` and the digest(i) of so many pairs, 1 to kPairsInLine. A jump into straight-line code: half the
// instructions of a loop.
template <class Digest>
[[gnu::always_inline]] inline uint64_t add_pairs(uint64_t sum, size_t pairs, Digest digest) {
  assert(pairs >= 1 && pairs <= kPairsInLine);
  switch (pairs) {
    case 8:
      sum += digest(7);
      [[fallthrough]];
    case 7:
      sum += digest(6);
      [[fallthrough]];
    case 6:
      sum += digest(5);
      [[fallthrough]];
    case 5:
      sum += digest(4);
      [[fallthrough]];
    case 4:
      sum += digest(3);
      [[fallthrough]];
    case 3:
      sum += digest(2);
      [[fallthrough]];
    case 2:
      sum += digest(1);
      [[fallthrough]];
    case 1:
      sum += digest(0);
      break;
    default:
      __builtin_unreachable();
  }
  return sum;
}

}  // namespace internal

// The contribution of one record to an epoch's order-independent checksum ("mum-row-sum"). The checksum is
// the sum of these digests modulo 2^64 over all records. Appenders and indexers get equal sums if no record
// was lost, duplicated, altered or paired with another record's key; otherwise they differ, except with a
// chance of about 2^-64. `row` is the key followed directly by the value, as records lie in frames, memtables
// and blocks.
//
// Multiplies neighbouring words, as wyhash and XXH3 do, but needs no preparation: every record is digested
// twice, and this takes half the instructions of XXH3 for a row of 48 bytes. Not for hash tables.
inline uint64_t record_digest(Bytes row, size_t key_bytes) {
  using internal::pair_digest;
  uint64_t sum = internal::begin_digest(row.size(), key_bytes);
  const size_t pairs = row.size() / 16;
  if (pairs != 0) [[likely]] {
    const char* const at = row.data();
    for (size_t i = internal::kPairsInLine; i < pairs; ++i) sum += pair_digest(at + 16 * i, i);
    sum = internal::add_pairs(sum, std::min(pairs, internal::kPairsInLine),
                              [at](size_t i) { return pair_digest(at + 16 * i, i); });
    // The last words overlap those before them.
    if (row.size() % 16 != 0) sum += pair_digest(row.data() + row.size() - 16, pairs);
  } else if (!row.empty()) {
    char padded[16] = {};
    copy_bytes(padded, row.data(), row.size());
    sum += pair_digest(padded, 0);
  }
  return internal::finish_digest(sum);
}

// The same for a size known at compile time: kPairs is row_bytes / 16, kRest says whether
// row_bytes % 16 != 0.
template <size_t kPairs, bool kRest>
inline uint64_t record_digest_of(const char* row, size_t row_bytes, size_t key_bytes) {
  uint64_t sum = internal::begin_digest(row_bytes, key_bytes);
#pragma GCC unroll 8
  for (size_t i = 0; i < kPairs; ++i) sum += internal::pair_digest(row + 16 * i, i);
  if constexpr (kRest) sum += internal::pair_digest(row + row_bytes - 16, kPairs);
  return internal::finish_digest(sum);
}

// Makes the row of a key of eight bytes and of a value of at most 127 at `to`, and returns its record_digest.
// In one pass: what is digested are the words that are being copied, in registers.
[[gnu::always_inline]] inline uint64_t copy_and_digest(char* to, const char* key, Bytes value) {
  constexpr size_t kKey = 8;
  const size_t row_bytes = kKey + value.size();
  if (value.size() < kKey) [[unlikely]] {
    copy_bytes(to, key, kKey);
    copy_bytes(to + kKey, value.data(), value.size());
    return record_digest({to, row_bytes}, kKey);
  }
  uint64_t sum = internal::begin_digest(row_bytes, kKey);
  sum = internal::add_pairs(sum, row_bytes / 16, [&](size_t i) {
    const char* const second = value.data() + 16 * i;
    return internal::copy_pair(to + 16 * i, i == 0 ? key : second - kKey, second, i);
  });
  if (row_bytes % 16 != 0) {  // the last words overlap those before them
    const char* const end = value.data() + value.size();
    if (row_bytes % 16 > 8) put_u64(to + row_bytes - 16, get_u64(end - 16));
    put_u64(to + row_bytes - 8, get_u64(end - 8));
    sum += internal::pair_digest(to + row_bytes - 16, row_bytes / 16);
  }
  return internal::finish_digest(sum);
}

}  // namespace swale
