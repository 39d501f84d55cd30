// radix_sort: sorts by 64-bit numbers that differ in few bits: hashes of many keys, blocks of one epoch.
//
// Least significant digit first, 11 bits at a time, skipping digits that are equal in all numbers; stable.
// Short or sorted ranges need no pass. Threads: a free function. Memory: `scratch` grows to the size of
// `items`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace swale::imd {

template <class T, class NumberOf>
void radix_sort(std::vector<T>& items, std::vector<T>& scratch, NumberOf number_of) {
  constexpr uint32_t kDigitBits = 11;
  constexpr size_t kDigits = size_t{1} << kDigitBits;
  constexpr size_t kShort = 256;
  const auto less = [&](const T& a, const T& b) { return number_of(a) < number_of(b); };
  if (std::is_sorted(items.begin(), items.end(), less)) return;
  if (items.size() <= kShort) {
    std::stable_sort(items.begin(), items.end(), less);
    return;
  }
  uint64_t differing = 0;
  for (const T& item : items) differing |= number_of(item) ^ number_of(items.front());
  for (uint32_t shift = 0; shift < 64 && differing >> shift != 0; shift += kDigitBits) {
    if ((differing >> shift & (kDigits - 1)) == 0) continue;
    std::array<size_t, kDigits> ends{};
    for (const T& item : items) ++ends[number_of(item) >> shift & (kDigits - 1)];
    size_t begin = 0;
    for (size_t& end : ends) begin += std::exchange(end, begin);
    scratch.resize(items.size());
    for (T& item : items) scratch[ends[number_of(item) >> shift & (kDigits - 1)]++] = std::move(item);
    items.swap(scratch);
  }
}

}  // namespace swale::imd
