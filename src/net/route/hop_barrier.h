// HopBarrier: how the ranks of a three-hop job learn that a hop carries nothing of the ending epoch any more.
// Each rank comes three times: when what it sent by hop 1, by hop 2 and by hop 3 has been read. The first and
// third time it waits for the ranks of its node, the second time for all ranks.
//
// The ranks of a node gather along a tree whose root is the node's first rank, their leader; the leaders of
// all nodes gather along another one. A rank has at most three children in each. So an epoch takes a leader
// at most 3 + 7 + 3 messages (and the mean rank 6) in a job of any size; eight children would take it 33.
//
// A passive machine: arrivals and messages in; messages and releases out.
// Invariants: (1) no release before all ranks of the group have come. (2) Releases come in the order of the
// arrivals.
// Threads: none; the owner serialises calls. Errors: on_message: kCorruption (scope peer).
// Format of a message: u8 tree (0 node, 1 leaders) | u8 way (1 up, 2 down) | varint round: how often the tree
// has released.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "net/meeting/fan_out.h"
#include "net/meeting/node_map.h"

namespace swale::net {

// One tree's rounds, seen by one member. Members have numbers 0..size-1.
class TreeBarrier {
 public:
  explicit TreeBarrier(const FanOut& tree) : tree_(tree) {}

  const FanOut& tree() const { return tree_; }
  uint64_t round() const { return round_; }

  void come() { come_ = true; }
  // A child says that all below it have come. False: it must not.
  bool take_up(int32_t child, uint64_t round);
  // The parent releases this member's round. False: it must not.
  bool may_release(int32_t parent, uint64_t round) const;
  // True once in a round: this member and all below it have come.
  bool gathered();
  void release();
  // A child that has not come with all below it, or -1.
  int32_t missing_child() const;

 private:
  const FanOut tree_;
  uint64_t round_ = 0;
  uint32_t children_in_ = 0;  // a bit for each
  bool come_ = false;
  bool gathered_ = false;
};

class HopBarrier {
 public:
  static constexpr int32_t kChildrenMax = 3;

  // `nodes` outlives it.
  HopBarrier(const NodeMap* nodes, Rank rank);

  // This rank's part of `hop` is done. Requires that the last arrival was released.
  void come(int hop);
  // True once for each arrival: all ranks of the group have come.
  bool take_release() { return std::exchange(released_, false); }

  Status on_message(Rank from, Bytes message);
  using Outgoing = std::pair<Rank, std::string>;
  std::deque<Outgoing>& outgoing() { return outgoing_; }

  // For people: a rank that this one waits for; -1: none that it knows.
  Rank missing() const;

 private:
  enum class Tree : uint8_t { kNode = 0, kLeaders = 1 };
  enum class Way : uint8_t { kUp = 1, kDown = 2 };

  Rank rank_of(Tree tree, int32_t member) const;
  int32_t member_of(Tree tree, Rank rank) const;  // -1: the rank is no member
  TreeBarrier& barrier(Tree tree) { return tree == Tree::kNode ? node_ : leaders_; }
  void tell(Tree tree, int32_t member, Way way, uint64_t round);
  void advance();
  void release(Tree tree);

  const NodeMap* nodes_;
  const Rank rank_;
  const Seat seat_;
  TreeBarrier node_;
  TreeBarrier leaders_;  // of use to leaders only
  int hop_ = 0;
  bool released_ = false;
  std::deque<Outgoing> outgoing_;
};

}  // namespace swale::net
