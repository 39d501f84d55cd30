// Copying of records: a few words, whose number is not known at compile time. A call of memcpy would cost
// more than the copy itself.
#pragma once

#include <cstddef>
#include <cstring>

namespace swale {

inline constexpr size_t kInlineCopyBytesMax = 256;

namespace internal {
template <size_t kWidth>
inline void copy_word(char* to, const char* from) {
  std::memcpy(to, from, kWidth);  // one load and one store
}
}  // namespace internal

// Both copy as memcpy does, and never touch a byte outside the two ranges.

// For a size known at compile time: kPairs is bytes / 16, at least 1; kRest says whether bytes % 16 != 0. The
// remaining bytes are then copied by one more pair that overlaps the last one.
template <size_t kPairs, bool kRest>
inline void copy_pairs(char* to, const char* from, size_t bytes) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kPairs; ++i) internal::copy_word<16>(to + 16 * i, from + 16 * i);
  if constexpr (kRest) internal::copy_word<16>(to + bytes - 16, from + bytes - 16);
}

// For any size.
inline void copy_bytes(char* to, const char* from, size_t bytes) {
  using internal::copy_word;
  if (bytes == 8) {  // most keys
    copy_word<8>(to, from);
  } else if (bytes >= 16) {
    if (bytes > kInlineCopyBytesMax) {
      std::memcpy(to, from, bytes);
      return;
    }
    // The last word overlaps the one before it unless they meet exactly.
    for (size_t at = 0; at + 16 < bytes; at += 16) copy_word<16>(to + at, from + at);
    copy_word<16>(to + bytes - 16, from + bytes - 16);
  } else if (bytes >= 8) {
    copy_word<8>(to, from);
    copy_word<8>(to + bytes - 8, from + bytes - 8);
  } else if (bytes >= 4) {
    copy_word<4>(to, from);
    copy_word<4>(to + bytes - 4, from + bytes - 4);
  } else {
    for (size_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

}  // namespace swale
