#include "stage/crc32c_join.h"

namespace swale::stage {
namespace {

// Polynomials modulo CRC-32C's, reflected: the top bit is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;
constexpr uint32_t kByte = kOne >> 8;  // x^8: what one more byte multiplies by

uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? b >> 1 ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(8 * bytes).
uint32_t shift_of(uint64_t bytes) {
  uint32_t shift = kOne;
  for (uint32_t power = kByte; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) shift = multiply(shift, power);
    power = multiply(power, power);
  }
  return shift;
}

}  // namespace

uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b) {
  return multiply(shift_of(bytes_b), crc_a) ^ crc_b;
}

uint32_t crc32c_extend_zeros(uint32_t crc, uint64_t bytes) { return ~multiply(shift_of(bytes), ~crc); }

}  // namespace swale::stage
