#include "base/crc32c_join.h"

namespace swale {
namespace {

// Polynomials modulo CRC-32C's, reflected: the top bit is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;
constexpr uint32_t kByte = kOne >> 8;  // x^8: what one more byte multiplies by

// Without branches: the bits are as good as random.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & -(a >> bit & 1);
    b = b >> 1 ^ (kPolynomial & -(b & 1));
  }
  return product;
}

// x^(8 * n * 256^i), of the byte n at place i of a length.
struct Shifts {
  uint32_t of[sizeof(uint64_t)][256];
};
constexpr Shifts make_shifts() {
  Shifts shifts = {};
  uint32_t step = kByte;
  for (auto& of_place : shifts.of) {
    of_place[0] = kOne;
    for (int n = 1; n < 256; ++n) of_place[n] = multiply(of_place[n - 1], step);
    step = multiply(of_place[255], step);
  }
  return shifts;
}
constexpr Shifts kShifts = make_shifts();

// a, and so many bytes after it.
uint32_t shifted(uint32_t a, uint64_t bytes) {
  for (const auto& of_place : kShifts.of) {
    if (const uint64_t n = bytes & 0xff; n != 0) a = multiply(of_place[n], a);
    bytes >>= 8;
  }
  return a;
}

}  // namespace

uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b) {
  return shifted(crc_a, bytes_b) ^ crc_b;
}

uint32_t crc32c_extend_zeros(uint32_t crc, uint64_t bytes) { return ~shifted(~crc, bytes); }

}  // namespace swale
