// plain_crc32c: base/crc32c.h's checksum for code that needs nothing but the compiler (a preload library).
// Where the processor has the instruction, 8 bytes in a cycle: it takes three, and three of them run at a
// time, on three stretches whose values are then joined. A byte in some cycles elsewhere.
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

#include "base/crc32c_polynomial.h"

namespace swale::fs {

struct Crc32cTable {
  uint32_t of_byte[256];
};
constexpr Crc32cTable make_crc32c_table() {
  Crc32cTable table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
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

// What so many bytes more multiply a state by; `doublings`: their number is a power of two.
constexpr uint32_t crc32c_shift(int doublings) {
  uint32_t shift = kCrc32cByte;
  for (int i = 0; i < doublings; ++i) shift = multiply_crc32c(shift, shift);
  return shift;
}

#if defined(__x86_64__)
inline constexpr int kCrc32cStretchDoublings = 12;
inline constexpr size_t kCrc32cStretch = size_t{1} << kCrc32cStretchDoublings;

__attribute__((target("sse4.2"))) inline uint32_t crc32c_of_three_stretches(uint32_t state,
                                                                            const char* bytes) {
  constexpr uint32_t kShift = crc32c_shift(kCrc32cStretchDoublings);
  uint64_t first = state, second = 0, third = 0;
  for (size_t at = 0; at < kCrc32cStretch; at += sizeof(uint64_t)) {
    uint64_t words[3];
    for (size_t i = 0; i < 3; ++i) std::memcpy(words + i, bytes + at + i * kCrc32cStretch, sizeof(uint64_t));
    first = __builtin_ia32_crc32di(first, words[0]);
    second = __builtin_ia32_crc32di(second, words[1]);
    third = __builtin_ia32_crc32di(third, words[2]);
  }
  const uint32_t two = multiply_crc32c(kShift, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
  return multiply_crc32c(kShift, two) ^ static_cast<uint32_t>(third);
}
__attribute__((target("sse4.2"))) inline uint32_t crc32c_by_instruction(uint32_t state, const char* bytes,
                                                                        size_t count) {
  for (; count >= 3 * kCrc32cStretch; bytes += 3 * kCrc32cStretch, count -= 3 * kCrc32cStretch)
    state = crc32c_of_three_stretches(state, bytes);
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
