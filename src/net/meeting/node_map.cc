#include "net/meeting/node_map.h"

#include <algorithm>

namespace swale::net {
namespace {

constexpr int64_t kRanksMax = 1 << 24;

}  // namespace

Result<NodeMap> NodeMap::in_blocks(std::span<const int32_t> ranks_per_node) {
  NodeMap map;
  int64_t sum = 0;
  map.first_.reserve(ranks_per_node.size() + 1);
  map.first_.push_back(0);
  for (const int32_t ranks : ranks_per_node) {
    sum += ranks;
    if (ranks < 1 || sum > kRanksMax) {
      return invalid_argument("nodes of the job: node {} has {} ranks (at least 1, at most {} in all)",
                              map.first_.size() - 1, ranks, kRanksMax);
    }
    map.first_.push_back(static_cast<int32_t>(sum));
  }
  if (sum == 0) return invalid_argument("nodes of the job: there is none");
  const bool alike = std::all_of(ranks_per_node.begin(), ranks_per_node.end(),
                                 [&](int32_t ranks) { return ranks == ranks_per_node.front(); });
  map.ranks_each_ = alike ? ranks_per_node.front() : 0;
  return map;
}

Result<NodeMap> NodeMap::of_ranks(std::span<const int32_t> node_of) {
  const int32_t nodes = node_of.empty() ? 0 : *std::max_element(node_of.begin(), node_of.end()) + 1;
  if (node_of.size() > kRanksMax || nodes > static_cast<int64_t>(node_of.size()) ||
      std::any_of(node_of.begin(), node_of.end(), [](int32_t node) { return node < 0; })) {
    return invalid_argument("nodes of the job: {} ranks cannot be on nodes numbered up to {}", node_of.size(),
                            nodes - 1);
  }
  std::vector<int32_t> counts(static_cast<size_t>(nodes));
  for (const int32_t node : node_of) ++counts[static_cast<size_t>(node)];
  SWALE_ASSIGN_OR_RETURN(NodeMap map, in_blocks(counts));
  if (std::is_sorted(node_of.begin(), node_of.end())) return map;
  std::vector<int32_t> next(map.first_.begin(), map.first_.end() - 1);
  map.position_of_.resize(node_of.size());
  map.rank_at_.resize(node_of.size());
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    const int32_t position = next[static_cast<size_t>(node_of[rank])]++;
    map.position_of_[rank] = position;
    map.rank_at_[static_cast<size_t>(position)] = static_cast<Rank>(rank);
  }
  return map;
}

Result<NodeMap> NodeMap::of_runs(std::span<const NodeRun> runs) {
  int64_t ranks = 0;
  bool in_blocks = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].ranks < 1 || (ranks += runs[i].ranks) > kRanksMax || runs[i].node < 0 ||
        runs[i].node >= kRanksMax) {
      return invalid_argument("nodes of the job: run {} has {} ranks on node {} (at most {} in all)", i,
                              runs[i].ranks, runs[i].node, kRanksMax);
    }
    in_blocks = in_blocks && runs[i].node == static_cast<int32_t>(i);
  }
  std::vector<int32_t> expanded;  // ranks of each node, or the node of each rank
  expanded.reserve(in_blocks ? runs.size() : static_cast<size_t>(ranks));
  for (const NodeRun& each : runs) {
    if (in_blocks) {
      expanded.push_back(each.ranks);
    } else {
      expanded.insert(expanded.end(), static_cast<size_t>(each.ranks), each.node);
    }
  }
  return in_blocks ? NodeMap::in_blocks(expanded) : of_ranks(expanded);
}

int32_t NodeMap::ranks_on_fullest() const {
  int32_t most = 0;
  for (int32_t node = 0; node < nodes(); ++node) most = std::max(most, ranks_on(node));
  return most;
}

Seat NodeMap::seat(Rank rank) const {
  const int32_t position = position_of_.empty() ? rank : position_of_[static_cast<size_t>(rank)];
  if (ranks_each_ != 0) return {position / ranks_each_, position % ranks_each_};
  const auto after = std::upper_bound(first_.begin(), first_.end(), position);
  const auto node = static_cast<int32_t>(after - first_.begin()) - 1;
  return {node, position - first_[static_cast<size_t>(node)]};
}

Rank NodeMap::rank_at(int32_t node, int32_t local) const {
  const int32_t position = first_[static_cast<size_t>(node)] + local;
  return rank_at_.empty() ? position : rank_at_[static_cast<size_t>(position)];
}

uint64_t NodeMap::memory_bytes() const {
  return (first_.size() + position_of_.size() + rank_at_.size()) * sizeof(int32_t);
}

}  // namespace swale::net
