#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "base/crc32c_of_memory.h"

namespace swale {

uint32_t crc32c_extend(uint32_t crc, Bytes bytes) {
  // crc32_iscsi takes the length as int, and inverts neither the seed nor the result.
  constexpr size_t kPieceBytes = kGiB;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t piece_bytes = std::min(bytes.size(), kPieceBytes);
    // The cast removes the const, which ISA-L's signature lacks.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(piece_bytes), state);
    bytes.remove_prefix(piece_bytes);
  }
  return ~state;
}

uint32_t crc32c_of_memory(Bytes bytes) {
  constexpr size_t kPieceBytes = 2048, kAheadBytes = 2 * kPieceBytes, kLineBytes = 64;
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const size_t end = std::min(bytes.size(), at + kAheadBytes + kPieceBytes);
    for (size_t ahead = at + kAheadBytes; ahead < end; ahead += kLineBytes)
      __builtin_prefetch(bytes.data() + ahead);
    crc = crc32c_extend(crc, bytes.substr(at, kPieceBytes));
  }
  return crc;
}

}  // namespace swale
