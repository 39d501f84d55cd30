// Polynomials modulo CRC-32C's, reflected (the top bit is the coefficient of x^0): what a checksum is
// multiplied by when bytes follow. For crc32c_join.h, and for code that needs nothing but the compiler.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

namespace swale {

inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;
inline constexpr uint32_t kCrc32cOne = uint32_t{1} << 31;
inline constexpr uint32_t kCrc32cByte = kCrc32cOne >> 8;  // x^8: what one more byte multiplies by

// Without branches: the bits are as good as random.
constexpr uint32_t multiply_crc32c(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & -(a >> bit & 1);
    b = b >> 1 ^ (kCrc32cPolynomial & -(b & 1));
  }
  return product;
}

}  // namespace swale
