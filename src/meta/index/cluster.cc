#include "meta/index/cluster.h"

#include <algorithm>
#include <utility>

namespace swale::meta {
namespace {

bool allowed(uint64_t wanted, uint32_t first, uint32_t last, unsigned percent, uint32_t blocks_max) {
  const uint64_t blocks = uint64_t{last} - first + 1;
  return blocks <= blocks_max && local_enough(wanted, blocks, percent);
}

Region region_of(std::span<const WantedBlock> wanted, size_t begin, size_t end) {
  Region region{wanted[begin].block, wanted[end - 1].block, static_cast<uint32_t>(end - begin), 0};
  for (size_t i = begin; i < end; ++i) region.requests += wanted[i].requests;
  return region;
}

}  // namespace

std::vector<Region> cluster_blocks(std::span<const WantedBlock> wanted, unsigned percent,
                                   uint32_t blocks_max) {
  std::vector<Region> regions;
  for (const WantedBlock& next : wanted) {
    Region joined{next.block, next.block, 1, next.requests};
    while (!regions.empty()) {
      const Region& before = regions.back();
      if (!allowed(before.wanted + joined.wanted, before.first, next.block, percent, blocks_max)) break;
      joined.first = before.first;
      joined.wanted += before.wanted;
      joined.requests += before.requests;
      regions.pop_back();
    }
    regions.push_back(joined);
  }
  return regions;
}

std::vector<Region> brute_force(std::span<const WantedBlock> wanted, unsigned percent, uint32_t blocks_max) {
  const size_t n = wanted.size();
  std::vector<size_t> fewest(n + 1, n + 1), from(n + 1, 0);  // for the first i blocks
  fewest[0] = 0;
  for (size_t end = 1; end <= n; ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      if (fewest[begin] + 1 < fewest[end] &&
          allowed(end - begin, wanted[begin].block, wanted[end - 1].block, percent, blocks_max)) {
        fewest[end] = fewest[begin] + 1;
        from[end] = begin;
      }
    }
  }
  std::vector<Region> regions;
  for (size_t end = n; end > 0; end = from[end]) regions.push_back(region_of(wanted, from[end], end));
  std::reverse(regions.begin(), regions.end());
  return regions;
}

namespace {

// Cuts wanted blocks into k groups around means: begin of each group, or empty if a group would be empty.
std::vector<size_t> k_means_cuts(std::span<const WantedBlock> wanted, size_t k) {
  std::vector<size_t> cuts(k + 1);
  for (size_t i = 0; i <= k; ++i) cuts[i] = wanted.size() * i / k;
  for (int round = 0; round < 100; ++round) {
    std::vector<double> means(k);
    for (size_t c = 0; c < k; ++c) {
      if (cuts[c] == cuts[c + 1]) return {};
      for (size_t i = cuts[c]; i < cuts[c + 1]; ++i) means[c] += wanted[i].block;
      means[c] /= static_cast<double>(cuts[c + 1] - cuts[c]);
    }
    std::vector<size_t> next = cuts;
    for (size_t c = 1; c < k; ++c) {
      const double border = (means[c - 1] + means[c]) / 2;
      next[c] =
          static_cast<size_t>(std::partition_point(wanted.begin(), wanted.end(),
                                                   [&](const WantedBlock& b) { return b.block < border; }) -
                              wanted.begin());
    }
    if (next == cuts) break;
    cuts = next;
  }
  return cuts;
}

}  // namespace

std::vector<Region> k_means(std::span<const WantedBlock> wanted, unsigned percent, uint32_t blocks_max) {
  for (size_t k = 1; k <= wanted.size(); ++k) {
    const std::vector<size_t> cuts = k_means_cuts(wanted, k);
    std::vector<Region> regions;
    bool ok = !cuts.empty();
    for (size_t c = 0; ok && c < k; ++c) {
      ok = cuts[c] < cuts[c + 1];
      if (!ok) break;
      regions.push_back(region_of(wanted, cuts[c], cuts[c + 1]));
      ok = allowed(regions.back().wanted, regions.back().first, regions.back().last, percent, blocks_max);
    }
    if (ok) return regions;
  }
  return {};
}

ClusterQueue::ClusterQueue(uint32_t blocks, unsigned percent, uint32_t blocks_max)
    : percent_(percent), blocks_max_(blocks_max), counts_(blocks) {}

void ClusterQueue::add(uint32_t block) {
  ++counts_[block];
  ++queued_;
}

Region ClusterQueue::take() {
  if (regions_.empty() || level() != clustered_level_) {
    std::vector<WantedBlock> wanted;
    for (uint32_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) wanted.push_back({i, counts_[i]});
    }
    regions_ = cluster_blocks(wanted, percent_, blocks_max_);
    clustered_level_ = level();
    ++clusterings_;
  }
  const auto densest =
      std::max_element(regions_.begin(), regions_.end(),
                       [](const Region& a, const Region& b) { return a.density() < b.density(); });
  Region region = *densest;
  regions_.erase(densest);
  region.requests = 0;
  for (uint32_t i = region.first; i <= region.last; ++i) region.requests += std::exchange(counts_[i], 0);
  queued_ -= region.requests;
  // Taking requests changes their number too; only new ones are a reason to cluster again.
  clustered_level_ = level();
  return region;
}

}  // namespace swale::meta
