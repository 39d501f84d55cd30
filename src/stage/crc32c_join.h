// The checksum of a file whose pieces several threads have read: CRC-32C (base/crc32c.h) of a concatenation
// from the values of its parts, and of zeros that nobody reads.
//
// Threads: pure functions. Cost: about 70 multiplications of polynomials of 32 bits, under 10 us.
#pragma once

#include <cstdint>

namespace swale::stage {

// The value of A followed by B, from that of A, that of B, and the length of B.
uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b);

// crc32c_extend(crc, so many zeros).
uint32_t crc32c_extend_zeros(uint32_t crc, uint64_t bytes);

}  // namespace swale::stage
