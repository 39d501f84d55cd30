// SparsePerRank: a T for each rank that has been met, found by its Rank: a hash table of ranks, at most half
// full. Memory grows with the ranks that were met, and not with those of the job. A T never moves.
//
// Threads: as std::vector. Errors: meet may throw std::bad_alloc and has done nothing then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "net/fabric/transport.h"

namespace swale::net {

template <class T>
class SparsePerRank {
 public:
  // nullptr: the rank has not been met.
  T* find(Rank rank) { return slots_.empty() ? nullptr : slots_[slot_of(slots_, rank)].item; }
  const T* find(Rank rank) const { return slots_.empty() ? nullptr : slots_[slot_of(slots_, rank)].item; }

  // Makes the rank's T if there is none.
  T& meet(Rank rank) {
    if (T* const known = find(rank)) return *known;
    if (2 * (met_.size() + 1) > slots_.size()) grow();
    if (met_.size() == met_.capacity()) met_.reserve(2 * met_.size() + 8);
    T& made = *items_.emplace_back(std::make_unique<T>());
    met_.push_back(rank);
    slots_[slot_of(slots_, rank)] = {rank, &made};
    return made;
  }

  // In the order in which they were met.
  const std::vector<Rank>& met() const { return met_; }
  const std::vector<std::unique_ptr<T>>& items() const { return items_; }

  uint64_t memory_bytes() const {
    return slots_.capacity() * sizeof(Slot) + met_.capacity() * sizeof(Rank) +
           items_.capacity() * sizeof(items_[0]) + items_.size() * sizeof(T);
  }

 private:
  struct Slot {
    Rank rank = -1;
    T* item = nullptr;  // nullptr: the slot is free
  };

  // The rank's slot, or the free one where it would stand.
  static size_t slot_of(const std::vector<Slot>& slots, Rank rank) {
    const size_t mask = slots.size() - 1;
    size_t at = static_cast<uint32_t>(rank) * uint64_t{0x9e3779b97f4a7c15} >> 32 & mask;
    while (slots[at].item != nullptr && slots[at].rank != rank) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (const Slot& each : slots_) {
      if (each.item != nullptr) larger[slot_of(larger, each.rank)] = each;
    }
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;  // a power of two
  std::vector<Rank> met_;
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace swale::net
