// Supervised block clustering (metakv, III-B): which blocks of a file are read together.
//
// The locality factor of a region is the share of its blocks that are wanted (equation 1). A region may be
// read at once if that is at least alpha. Algorithm 1 adds the wanted blocks one by one and joins each with
// as many of the regions before it as the factor allows. It looks no further back than the first region that
// may not be joined, so it is greedy: brute_force finds the fewest regions, and k_means is the paper's other
// candidate, both for comparison.
//
// Threads: pure functions; a ClusterQueue belongs to one thread.
// Limits: block numbers below 2^32. brute_force and k_means are for small cases: O(n^2) and O(n^3 t).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace swale::meta {

struct Region {
  uint32_t first = 0, last = 0;  // blocks, both included
  uint32_t wanted = 0;           // how many of them are wanted
  uint64_t requests = 0;         // queued for them

  uint32_t blocks() const { return last - first + 1; }
  // Equation 2: requests a block.
  double density() const { return static_cast<double>(requests) / blocks(); }
  friend bool operator==(const Region&, const Region&) = default;
};

struct WantedBlock {
  uint32_t block = 0;
  uint64_t requests = 1;
};

// LF >= alpha, in whole numbers.
inline bool local_enough(uint64_t wanted, uint64_t blocks, unsigned percent) {
  return wanted * 100 >= blocks * percent;
}

// Algorithm 1. `wanted` ascends. Regions ascend and are at most blocks_max long.
std::vector<Region> cluster_blocks(std::span<const WantedBlock> wanted, unsigned percent,
                                   uint32_t blocks_max);

// The fewest regions that satisfy the constraint, by dynamic programming over all cuts.
std::vector<Region> brute_force(std::span<const WantedBlock> wanted, unsigned percent, uint32_t blocks_max);

// The least K for which K-means (one dimension, started at quantiles, until nothing moves) gives regions that
// satisfy it.
std::vector<Region> k_means(std::span<const WantedBlock> wanted, unsigned percent, uint32_t blocks_max);

// Requests that wait for blocks of one file. Clusters again when their number reaches another level (one
// level for each thousandth of the blocks), and gives out the region with the highest request density first,
// so that regions with few requests can collect more.
class ClusterQueue {
 public:
  ClusterQueue(uint32_t blocks, unsigned percent, uint32_t blocks_max);

  void add(uint32_t block);
  bool empty() const { return queued_ == 0; }
  // The next region to read; its requests leave the queue. Requires !empty().
  Region take();
  uint64_t clusterings() const { return clusterings_; }

 private:
  uint64_t level() const { return queued_ / (counts_.size() / 1000 + 1); }

  const unsigned percent_;
  const uint32_t blocks_max_;
  std::vector<uint64_t> counts_;  // requests by block
  std::vector<Region> regions_;   // of the last clustering that are not taken
  uint64_t queued_ = 0;
  uint64_t clustered_level_ = ~uint64_t{0};
  uint64_t clusterings_ = 0;
};

}  // namespace swale::meta
