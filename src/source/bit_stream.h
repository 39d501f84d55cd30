// BitWriter and bit loads: numbers of any width, one after the other, bit i of a stream in bit i % 8 of byte
// i / 8.
//
// Rice codes: a number x with parameter k is x >> k zeros, a one, and the k low bits of x.
// Threads: values. Errors: put throws std::bad_alloc.
// Limits: loads look at the 8 bytes from the byte of their first bit on: keep kSlackBytes after every stream.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <string>

#include "base/coding.h"

namespace swale::source {

inline constexpr size_t kSlackBytes = 8;

constexpr uint64_t low_bits(uint32_t count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Up to 57 bits from `bit` on.
inline uint64_t load_bits(const char* bytes, uint64_t bit, uint32_t count) {
  return get_u64(bytes + bit / 8) >> bit % 8 & low_bits(count);
}

class BitWriter {
 public:
  explicit BitWriter(std::string* out) : out_(out) {}

  // Requires count <= 57 and value < 2^count.
  void put(uint64_t value, uint32_t count) {
    word_ |= value << used_;
    used_ += count;
    if (used_ >= 8) spill();
  }

  void put_rice(uint64_t value, uint32_t parameter) {
    uint64_t zeros = value >> parameter;
    for (; zeros >= 48; zeros -= 48) put(0, 48);
    put(uint64_t{1} << zeros, static_cast<uint32_t>(zeros) + 1);
    put(value & low_bits(parameter), parameter);
  }

  // Writes the last bits, filled up with zeros to a byte.
  void finish() {
    if (used_ > 0) out_->push_back(static_cast<char>(word_));
    word_ = 0;
    used_ = 0;
  }

 private:
  // Leaves fewer than 8 bits, so that 57 more fit.
  void spill() {
    char bytes[8];
    put_u64(bytes, word_);
    const uint32_t whole = used_ / 8;
    out_->append(bytes, whole);
    word_ = whole == 8 ? 0 : word_ >> whole * 8;
    used_ %= 8;
  }

  std::string* out_;
  uint64_t word_ = 0;
  uint32_t used_ = 0;
};

// Bits of `x` coded with `parameter`.
constexpr uint64_t rice_bits(uint64_t x, uint32_t parameter) { return (x >> parameter) + 1 + parameter; }

// The parameter for numbers whose mean is `mean`: within 1 % of the best one for geometric numbers.
constexpr uint32_t rice_parameter(uint64_t mean) {
  const uint64_t scaled = mean - mean / 4;
  return scaled <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(scaled)) - 1;
}

// Reads one Rice code at *bit and moves past it. False if it goes beyond `end`; bytes has kSlackBytes after
// `end`.
inline bool read_rice(const char* bytes, uint64_t* bit, uint64_t end, uint32_t parameter, uint64_t* value) {
  uint64_t zeros = 0;
  uint64_t at = *bit;
  for (;;) {
    if (at >= end) return false;
    const uint64_t word = load_bits(bytes, at, 57);
    if (word != 0) [[likely]] {
      const auto here = static_cast<uint32_t>(std::countr_zero(word));
      zeros += here;
      at += here + 1;
      break;
    }
    zeros += 57;
    at += 57;
  }
  if (at + parameter > end) return false;
  *value = zeros << parameter | load_bits(bytes, at, parameter);
  *bit = at + parameter;
  return true;
}

}  // namespace swale::source
