// CRC-32C (Castagnoli), the checksum of every block and record on disk.
//
// Convention: the usual one (iSCSI, RFC 3720): crc32c("123456789") == 0xE3069283, and the value of a
// concatenation is crc32c_extend(crc32c(a), b). Zero is the value of no bytes.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace swale {

uint32_t crc32c_extend(uint32_t crc, Bytes bytes);
inline uint32_t crc32c(Bytes bytes) { return crc32c_extend(0, bytes); }

}  // namespace swale
