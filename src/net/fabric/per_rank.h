// PerRank: one T for each rank of a job, found by its Rank and by nothing else.
//
// Threads: as std::vector.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "net/fabric/transport.h"

namespace swale::net {

template <class T>
class PerRank {
 public:
  PerRank() = default;
  explicit PerRank(int32_t ranks) : items_(static_cast<size_t>(ranks)) {}
  explicit PerRank(std::vector<T> items) : items_(std::move(items)) {}

  void push_back(T item) { items_.push_back(std::move(item)); }  // of the next rank

  // The number of ranks: the first Rank that is none of them.
  Rank ranks() const { return static_cast<Rank>(items_.size()); }
  bool has(Rank rank) const { return rank >= 0 && rank < ranks(); }

  decltype(auto) operator[](Rank rank) {
    assert(has(rank));
    return items_[static_cast<size_t>(rank)];
  }
  decltype(auto) operator[](Rank rank) const {
    assert(has(rank));
    return items_[static_cast<size_t>(rank)];
  }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace swale::net
