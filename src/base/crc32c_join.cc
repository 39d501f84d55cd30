#include "base/crc32c_join.h"

#include "base/crc32c_polynomial.h"

namespace swale {
namespace {

// x^(8 * n * 256^i), of the byte n at place i of a length.
struct Shifts {
  uint32_t of[sizeof(uint64_t)][256];
};
constexpr Shifts make_shifts() {
  Shifts shifts = {};
  uint32_t step = kCrc32cByte;
  for (auto& of_place : shifts.of) {
    of_place[0] = kCrc32cOne;
    for (int n = 1; n < 256; ++n) of_place[n] = multiply_crc32c(of_place[n - 1], step);
    step = multiply_crc32c(of_place[255], step);
  }
  return shifts;
}
constexpr Shifts kShifts = make_shifts();

// a, and so many bytes after it.
uint32_t shifted(uint32_t a, uint64_t bytes) {
  for (const auto& of_place : kShifts.of) {
    if (const uint64_t n = bytes & 0xff; n != 0) a = multiply_crc32c(of_place[n], a);
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
