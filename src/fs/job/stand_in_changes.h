// Which bytes of a stand-in its programs have changed, and how bytes of other nodes come into it while they
// write it (shared_stand_ins.h).
//
// Threads: find_changes: pure. merge_changes: beside programs that write the same memory, by whatever calls:
// a byte of theirs is never lost, as each word is exchanged only if it is what was looked at.
// Limits: a program that writes the byte that was there before has changed nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace swale::fs {

namespace stand_in_changes {

inline constexpr size_t kWord = sizeof(uint64_t);

// `before`: null: zeros.
struct Pair {
  const char* now;
  const char* before;

  uint64_t difference(size_t at) const {
    uint64_t one = 0, other = 0;
    std::memcpy(&one, now + at, kWord);
    if (before != nullptr) std::memcpy(&other, before + at, kWord);
    return one ^ other;
  }
  bool differs(size_t at) const { return now[at] != (before == nullptr ? '\0' : before[at]); }
};

inline bool has_zero_byte(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  return ((word - kOnes) & ~word & kHighs) != 0;
}

inline size_t first_difference(const Pair& of, size_t at, size_t end) {
  while (at + kWord <= end && of.difference(at) == 0) at += kWord;
  while (at < end && !of.differs(at)) ++at;
  return at;
}

inline size_t first_equal(const Pair& of, size_t at, size_t end) {
  while (at + kWord <= end && !has_zero_byte(of.difference(at))) at += kWord;
  while (at < end && of.differs(at)) ++at;
  return at;
}

}  // namespace stand_in_changes

// visit(begin, end) of each piece in which they differ, and of at most `bridge` equal bytes between two.
template <class Visit>
void find_changes(const char* now, const char* before, size_t bytes, size_t bridge, const Visit& visit) {
  using stand_in_changes::first_difference, stand_in_changes::first_equal;
  const stand_in_changes::Pair of{now, before};
  size_t begin = first_difference(of, 0, bytes);
  while (begin < bytes) {
    size_t end = first_equal(of, begin, bytes), next = first_difference(of, end, bytes);
    while (next < bytes && next - end <= bridge) {
      end = first_equal(of, next, bytes);
      next = first_difference(of, end, bytes);
    }
    visit(begin, end);
    begin = next;
  }
}

// Where the tree has become `now`, and `shown` has still what was `before`, it gets the tree's. `shown`: at a
// word's address, up to the end of the last word.
inline void merge_changes(char* shown, const char* now, const char* before, size_t bytes) {
  using stand_in_changes::kWord;
  for (size_t at = 0; at < bytes; at += kWord) {
    uint64_t was = 0, is = 0;
    const size_t part = std::min(kWord, bytes - at);
    std::memcpy(&was, before + at, part);
    std::memcpy(&is, now + at, part);
    if (was == is) continue;
    const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(shown + at));
    for (uint64_t seen = word.load(std::memory_order_relaxed), next = 0;;) {
      uint64_t taken = 0;
      for (size_t i = 0; i < part; ++i) {
        const uint64_t byte = uint64_t{0xff} << (8 * i);
        if (((was ^ is) & byte) != 0 && ((seen ^ was) & byte) == 0) taken |= byte;
      }
      next = (seen & ~taken) | (is & taken);
      if (next == seen || word.compare_exchange_weak(seen, next)) break;
    }
  }
}

}  // namespace swale::fs
