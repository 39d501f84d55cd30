// FanOut: the tree along which ranks of a job gather and spread: rank 0 is the root, every rank has at most
// eight children, or as many as is said. With 100,000 ranks and eight children it is six levels deep, and a
// rank talks to nine others.
//
// Threads: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "net/fabric/transport.h"

namespace swale::net {

struct FanOut {
  static constexpr int32_t kChildrenMax = 8;

  Rank rank = 0;
  int32_t size = 1;
  int32_t children_max = kChildrenMax;

  bool is_root() const { return rank == 0; }
  Rank parent() const { return parent_of(rank); }  // requires that this is not the root
  bool is_child(Rank other) const { return other > 0 && other < size && parent_of(other) == rank; }
  bool is_neighbour(Rank other) const { return is_child(other) || (!is_root() && other == parent()); }

  int32_t child_count() const {
    return static_cast<int32_t>(std::clamp<int64_t>(size - first_child(), 0, children_max));
  }
  std::vector<Rank> children() const {
    std::vector<Rank> all(static_cast<size_t>(child_count()));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<Rank>(first_child() + static_cast<int64_t>(i));
    return all;
  }

  std::vector<Rank> neighbours() const {
    std::vector<Rank> all = children();
    if (!is_root()) all.push_back(parent());
    return all;
  }

  Rank parent_of(Rank other) const { return (other - 1) / children_max; }

 private:
  int64_t first_child() const { return int64_t{rank} * children_max + 1; }
};

}  // namespace swale::net
