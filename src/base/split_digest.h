// record_digest (hash.h) of a record whose key and value lie apart: no row is made for it.
//
// For keys of eight bytes. A row would be pairs of words: the key with the value's first word, then the
// value's other words, two by two; the last pair overlaps the one before it.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/coding.h"
#include "base/hash.h"

namespace swale {

inline constexpr size_t kSplitKeyBytes = 8;

// `key` as a word of get_u64; `value_bytes` at least 8. kPairs is row_bytes / 16, kRest says
// whether row_bytes % 16 != 0, where row_bytes is the length of key and value.
template <size_t kPairs, bool kRest>
inline uint64_t split_digest_of(uint64_t key, const char* value, size_t value_bytes) {
  static_assert(kPairs >= 1);
  const size_t row_bytes = kSplitKeyBytes + value_bytes;
  uint64_t sum = internal::begin_digest(row_bytes, kSplitKeyBytes);
  sum += internal::pair_digest(key, get_u64(value), 0);
#pragma GCC unroll 8
  for (size_t i = 1; i < kPairs; ++i) sum += internal::pair_digest(value + 16 * i - kSplitKeyBytes, i);
  if (kRest && kPairs == 1 && value_bytes < 16) {  // the last pair begins in the key
    const size_t key_bits = 8 * (value_bytes - kSplitKeyBytes);
    const uint64_t first = key >> key_bits | get_u64(value) << (64 - key_bits);
    sum += internal::pair_digest(first, get_u64(value + value_bytes - 8), kPairs);
  } else if (kRest) {
    sum += internal::pair_digest(value + value_bytes - 16, kPairs);
  }
  return internal::finish_digest(sum);
}

}  // namespace swale
