#include "source/pair.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace swale::source {
namespace {

constexpr uint32_t kDigitBits = 11;
constexpr size_t kSmall = 64;

// Distributes by the digit at `shift`, stable.
void radix_pass(const Pair* from, Pair* to, size_t count, uint32_t shift) {
  uint32_t starts[1u << kDigitBits] = {};
  constexpr uint64_t kMask = (1u << kDigitBits) - 1;
  for (size_t i = 0; i < count; ++i) ++starts[from[i] >> shift & kMask];
  uint32_t sum = 0;
  for (uint32_t& start : starts) {
    const uint32_t here = start;
    start = sum;
    sum += here;
  }
  for (size_t i = 0; i < count; ++i) to[starts[from[i] >> shift & kMask]++] = from[i];
}

// Pairs are in order by their bits above `shift`: puts neighbours with equal ones into order. A hot key makes
// long groups, which std::sort takes.
void repair(std::span<Pair> pairs, uint32_t shift) {
  size_t i = 0;
  while (i + 1 < pairs.size()) {
    if (pairs[i] >> shift != pairs[i + 1] >> shift) {
      ++i;
      continue;
    }
    size_t end = i + 2;
    while (end < pairs.size() && pairs[end] >> shift == pairs[i] >> shift) ++end;
    std::sort(pairs.begin() + static_cast<ptrdiff_t>(i), pairs.begin() + static_cast<ptrdiff_t>(end));
    i = end;
  }
}

}  // namespace

void sort_pairs(std::span<Pair> pairs, std::span<Pair> scratch, uint32_t equal_bits) {
  assert(scratch.size() >= pairs.size() && pairs.size() < UINT32_MAX);
  if (pairs.size() < kSmall) {
    std::sort(pairs.begin(), pairs.end());
    return;
  }
  // Six bits more than the count has: one pair in 64 then meets a neighbour with the same digits.
  const auto wanted = static_cast<uint32_t>(std::bit_width(pairs.size())) + 6;
  const uint32_t passes = std::min((wanted + kDigitBits - 1) / kDigitBits, (64 - equal_bits) / kDigitBits);
  const uint32_t lowest = 64 - equal_bits - passes * kDigitBits;
  Pair* from = pairs.data();
  Pair* to = scratch.data();
  for (uint32_t pass = 0; pass < passes; ++pass, std::swap(from, to)) {
    radix_pass(from, to, pairs.size(), lowest + pass * kDigitBits);
  }
  if (from != pairs.data()) std::memcpy(pairs.data(), from, pairs.size_bytes());
  repair(pairs, lowest);
}

}  // namespace swale::source
