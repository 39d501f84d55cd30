// Bloom filters of records' hashes (Bloom 1970), plain and blocked ("cache-, hash- and space-efficient",
// Putze, Sanders, Singler 2007: a line of 512 bits takes all bits of a record).
//
// Filters use only the top 33 bits of a rest, as the sketches in memory keep no more. Records that agree in
// these bits are one record to the filter: with 170 records in one of 1,024 slices, 2 in 100,000.
//
// Format, with b bits a record and n records: a filter has ceil(n * b / 8) bytes, or 64 * ceil(n * b /
// 512) if it is blocked; b = 0: none. k = max(1, (6931 * b + 5000) / 10000) bits are set for each record.
// With C = 0x9e3779b97f4a7c15, modulo 2^64: s = (rest >> 31) * C; *next* is s = (s ^ s >> 29) * C, and
// gives s ^ s >> 32. choose(h, m) is the upper half of the 128-bit product.
//   plain    k times: bit choose(next, bits of the filter)
//   blocked  line choose(next, lines) of 512 bits, then of each further *next* up to 7 bits of the line: its
//            lowest 9 bits, the 9 above them, and so on, k in all
// Filters have no alignment. Threads: free functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "base/uint128.h"

namespace swale::run {

inline constexpr uint32_t kFilterHashBits = 33;
inline constexpr size_t kBloomLineBytes = 64;

struct BloomShape {
  bool blocked = false;
  uint32_t bits = 0;  // per record, 0..32; 0: no filter, everything passes

  size_t bytes(uint64_t records) const {
    const uint64_t all = records * bits;
    return static_cast<size_t>(blocked ? (all + 511) / 512 * kBloomLineBytes : (all + 7) / 8);
  }
  // bits · ln 2, rounded.
  uint32_t probes() const { return std::max<uint32_t>(1, (bits * 6931 + 5000) / 10'000); }
};

class BloomProbe {
 public:
  BloomProbe(const BloomShape& shape, Hash rest)
      : shape_(shape), state_((rest >> (64 - kFilterHashBits)) * kFactor) {}

  void add(char* filter, size_t bytes) {
    each(bytes, [&](uint64_t bit) {
      filter[bit / 8] = static_cast<char>(filter[bit / 8] | 1 << bit % 8);
      return true;
    });
  }
  bool may_be_in(const char* filter, size_t bytes) {
    return each(bytes, [&](uint64_t bit) { return (filter[bit / 8] >> bit % 8 & 1) != 0; });
  }

 private:
  static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;

  uint64_t next() {
    state_ = (state_ ^ state_ >> 29) * kFactor;
    return state_ ^ state_ >> 32;
  }
  // Calls fn(bit) for each of the record's bits until fn returns false.
  template <class Fn>
  bool each(size_t bytes, Fn&& fn) {
    if (bytes == 0) return true;
    const uint64_t choices = shape_.blocked ? bytes / kBloomLineBytes : bytes * uint64_t{8};
    const uint32_t probes = shape_.probes();
    if (!shape_.blocked) {
      for (uint32_t i = 0; i < probes; ++i) {
        if (!fn(choose(next(), choices))) return false;
      }
      return true;
    }
    const uint64_t line = choose(next(), choices) * 512;
    for (uint32_t done = 0; done < probes;) {
      uint64_t word = next();
      for (uint32_t i = 0; i < 7 && done < probes; ++i, ++done, word >>= 9) {
        if (!fn(line + (word & 511))) return false;
      }
    }
    return true;
  }
  static uint64_t choose(uint64_t word, uint64_t n) {
    return static_cast<uint64_t>((Uint128{word} * n) >> 64);
  }

  const BloomShape shape_;
  uint64_t state_;
};

}  // namespace swale::run
