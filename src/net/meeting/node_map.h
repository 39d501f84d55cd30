// NodeMap: which ranks share which node, and who represents a node to another one on the three-hop route.
//
// Each node's ranks share the work: towards node B, node A is represented by its local rank number
// (B - A mod nodes) mod (ranks of A), so that remote nodes are spread over the local ranks. The pair
// (representative of A towards B, representative of B towards A) is the only connection between the two
// nodes.
// Source: deltafs-streaming-2020, section 4.3; deltafs-scaling-2018, section III ("three-hop").
//
// Threads: immutable. Limits: 2^24 ranks.
// Memory: 4 bytes a node where the ranks of each node follow one another (the usual placement), else 4 bytes
// a rank more, twice: memory_bytes().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

struct Seat {
  int32_t node = 0;
  int32_t local = 0;  // among the ranks of the node, in order of rank
};

// Ranks that follow one another on one node.
struct NodeRun {
  int32_t node = 0;
  int32_t ranks = 0;
};

class NodeMap {
 public:
  // Ranks of each node, placed one node after the other. kInvalidArgument if a node has none, or there is
  // none.
  static Result<NodeMap> in_blocks(std::span<const int32_t> ranks_per_node);
  // node_of[rank]; nodes are numbered 0..nodes-1, each with a rank at least. kInvalidArgument else.
  static Result<NodeMap> of_ranks(std::span<const int32_t> node_of);
  // The same, as runs of ranks, from rank 0. Takes no memory that grows with the ranks if they are placed in
  // blocks.
  static Result<NodeMap> of_runs(std::span<const NodeRun> runs);

  int32_t ranks() const { return first_.back(); }
  int32_t nodes() const { return static_cast<int32_t>(first_.size()) - 1; }
  int32_t ranks_on(int32_t node) const {
    return first_[static_cast<size_t>(node) + 1] - first_[static_cast<size_t>(node)];
  }

  Seat seat(Rank rank) const;
  Rank rank_at(int32_t node, int32_t local) const;

  // The rank of `node` that talks to `other`. Requires node != other.
  Rank representative(int32_t node, int32_t other) const {
    return rank_at(node, local_representative(node, other));
  }
  int32_t local_representative(int32_t node, int32_t other) const {
    return (other - node + nodes()) % nodes() % ranks_on(node);
  }

  // On the node that has most of them.
  int32_t ranks_on_fullest() const;

  uint64_t memory_bytes() const;

 private:
  NodeMap() = default;

  int32_t ranks_each_ = 0;  // on every node, if all have as many; else 0
  // of each node: how many ranks are on nodes before it; the count of ranks last
  std::vector<int32_t> first_;
  // Of ranks that are not placed in blocks: rank -> position, where positions are in blocks; and back. Else
  // empty.
  std::vector<int32_t> position_of_;
  std::vector<Rank> rank_at_;
};

}  // namespace swale::net
