// The checksum of bytes whose pieces were read apart, by several threads or at several times: CRC-32C
// (base/crc32c.h) of a concatenation from the values of its parts, and of zeros that nobody reads.
//
// Threads: pure functions. Cost: a multiplication of polynomials, 50 ns, for each byte of the length that is
// not 0. Memory: a table of 8 KiB.
#pragma once

#include <cstdint>

namespace swale {

// The value of A followed by B, from that of A, that of B, and the length of B.
uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b);

// crc32c_extend(crc, so many zeros).
uint32_t crc32c_extend_zeros(uint32_t crc, uint64_t bytes);

}  // namespace swale
