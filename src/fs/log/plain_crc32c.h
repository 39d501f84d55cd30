// plain_crc32c: base/crc32c.h's checksum for code that needs nothing but the compiler (a preload library).
// 8 bytes in 3 cycles where the processor has the instruction; a byte in some elsewhere.
//
// Threads: a pure function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace swale::fs {

struct Crc32cTable {
  uint32_t of_byte[256];
};
constexpr Crc32cTable make_crc32c_table() {
  Crc32cTable table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    table.of_byte[byte] = crc;
  }
  return table;
}
inline constexpr Crc32cTable kCrc32cTable = make_crc32c_table();

inline uint32_t crc32c_by_table(uint32_t state, const char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    state = state >> 8 ^ kCrc32cTable.of_byte[(state ^ static_cast<unsigned char>(bytes[i])) & 0xff];
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) inline uint32_t crc32c_by_instruction(uint32_t state, const char* bytes,
                                                                        size_t count) {
  uint64_t wide = state;
  for (; count >= sizeof(uint64_t); bytes += sizeof(uint64_t), count -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  for (; count > 0; ++bytes, --count)
    state = __builtin_ia32_crc32qi(state, static_cast<unsigned char>(*bytes));
  return state;
}
// The question takes microseconds in a virtual machine.
inline bool has_crc32c_instruction() {
  static constinit std::atomic<int> known = 0;  // 1: no, 2: yes
  if (const int answer = known.load(std::memory_order_relaxed); answer != 0) return answer == 2;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
  known.store(has ? 2 : 1, std::memory_order_relaxed);
  return has;
}
#endif

// The value of a concatenation is plain_crc32c(plain_crc32c(0, a), b).
inline uint32_t plain_crc32c(uint32_t crc, const char* bytes, size_t count) {
#if defined(__x86_64__)
  if (has_crc32c_instruction()) return ~crc32c_by_instruction(~crc, bytes, count);
#endif
  return ~crc32c_by_table(~crc, bytes, count);
}

}  // namespace swale::fs
