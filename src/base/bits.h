// Arithmetic on bits without branches. Bit arrays with ranks, as sketches and auxiliary tables use them: bit
// i is bit i % 8 of byte i / 8.
//
// Counting and selecting within a word work on its bytes in parallel: baseline x86-64 has no instruction for
// either, and a library call costs more than a dozen inline operations.
// Threads: a view. Bounds: no call reads past size(); a search past the end returns size() or 0.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace swale {

// `yes` or `no`, by a conditional move: for a condition that holds every other time, as in a search among
// random keys. gcc makes a branch of most conditional expressions, and a processor would guess every other
// one wrong.
constexpr size_t choose(bool condition, size_t yes, size_t no) {
  return __builtin_expect_with_probability(condition, 1, 0.5) ? yes : no;
}

// The word with bit `bit` % 64 set.
inline uint64_t with_bit(uint64_t word, uint64_t bit) {
#if defined(__x86_64__)
  asm("btsq %1, %0" : "+r"(word) : "r"(bit) : "cc");  // gcc shifts a one, which takes thrice the work
  return word;
#else
  return word | uint64_t{1} << bit % 64;
#endif
}

inline constexpr uint64_t kByteOnes = 0x0101010101010101;   // the lowest bit of each byte
inline constexpr uint64_t kByteHighs = 0x8080808080808080;  // the highest

// Byte i of the result counts the ones in bytes 0..i of the word; the last byte counts those of the whole
// word.
constexpr uint64_t byte_prefix_ones(uint64_t word) {
  word -= word >> 1 & 0x5555555555555555;
  word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return word * kByteOnes;
}
constexpr uint32_t count_ones(uint64_t word) { return static_cast<uint32_t>(byte_prefix_ones(word) >> 56); }

// How many bytes of `prefixes`, which ascend and are below 128, are at most n.
constexpr uint32_t bytes_at_most(uint64_t prefixes, uint64_t n) {
  const uint64_t high_stays = ((n * kByteOnes | kByteHighs) - prefixes) & kByteHighs;
  return static_cast<uint32_t>((high_stays >> 7) * kByteOnes >> 56);
}

// The position of the n-th one, counted from 0. Requires n < count_ones(word). Branch-free: branches would be
// random.
constexpr uint32_t select_one(uint64_t word, uint32_t n) {
  const uint64_t prefix = byte_prefix_ones(word);
  const uint32_t shift = bytes_at_most(prefix, n) * 8;
  const uint64_t left = n - ((prefix << 8) >> shift & 0xff);
  // Bit i of the byte becomes byte i, 0 or 1.
  const uint64_t spread = (word >> shift & 0xff) * kByteOnes & 0x8040201008040201;
  const uint64_t bits = (spread + (kByteHighs - kByteOnes)) >> 7 & kByteOnes;
  return shift + bytes_at_most(bits * kByteOnes, left);
}

class BitSpan {
 public:
  BitSpan() = default;
  BitSpan(const void* data, uint64_t bits) : data_(static_cast<const char*>(data)), bits_(bits) {}

  uint64_t size() const { return bits_; }

  // Up to 64 bits from `bit` on, the first one lowest; zeros past the end.
  uint64_t load(uint64_t bit) const {
    if (bit >= bits_) return 0;
    const uint64_t byte = bit / 8;
    const uint64_t bytes = (bits_ + 7) / 8 - byte;
    uint64_t word = 0;
    if (bytes >= 8) {
      std::memcpy(&word, data_ + byte, 8);
    } else {
      std::memcpy(&word, data_ + byte, bytes);
    }
    word >>= bit % 8;
    if (bit % 8 != 0 && bytes > 8) word |= uint64_t{static_cast<uint8_t>(data_[byte + 8])} << (64 - bit % 8);
    const uint64_t left = bits_ - bit;
    return left >= 64 ? word : word & ((uint64_t{1} << left) - 1);
  }

  // The position after the n-th zero (one) at or after `from`; `from` for n = 0; size() if there are fewer.
  uint64_t after_zeros(uint64_t from, uint64_t n) const { return after<true>(from, n); }
  uint64_t after_ones(uint64_t from, uint64_t n) const { return after<false>(from, n); }

 private:
  template <bool kZeros>
  uint64_t after(uint64_t from, uint64_t n) const {
    if (n == 0) return from;
    uint64_t byte = from / 8;
    for (uint64_t skipped = from % 8; byte + 8 <= bits_ / 8; byte += 8, skipped = 0) {
      uint64_t word = 0;
      std::memcpy(&word, data_ + byte, 8);
      word = (kZeros ? ~word : word) & ~uint64_t{0} << skipped;
      if (word == 0) continue;
      const uint64_t count = count_ones(word);
      if (count >= n) return byte * 8 + select_one(word, static_cast<uint32_t>(n - 1)) + 1;
      n -= count;
    }
    // Fewer than 64 bits are left.
    const uint64_t at = std::max(from, byte * 8);
    if (at >= bits_) return bits_;
    const uint64_t word = kZeros ? ~load(at) & ((uint64_t{1} << (bits_ - at)) - 1) : load(at);
    return n <= count_ones(word) ? at + select_one(word, static_cast<uint32_t>(n - 1)) + 1 : bits_;
  }

  const char* data_ = nullptr;
  uint64_t bits_ = 0;
};

}  // namespace swale
