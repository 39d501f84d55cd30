#include "net/meeting/node_map.h"

#include <gtest/gtest.h>

#include <map>

#include "net/route/testing/threehop_test_job.h"

namespace swale::net::node_map_test {
namespace {

using test::blocks;

TEST(NodeMap, FindsSeatsWhateverThePlacement) {
  const NodeMap in_blocks = blocks({3, 1, 2});
  EXPECT_EQ(in_blocks.nodes(), 3);
  EXPECT_EQ(in_blocks.seat(3).node, 1);
  EXPECT_EQ(in_blocks.seat(5).local, 1);
  const std::vector<int32_t> cyclic = {0, 1, 2, 0, 1, 0};
  const auto map = NodeMap::of_ranks(cyclic);
  ASSERT_TRUE(map.ok());
  for (Rank rank = 0; rank < 6; ++rank) {
    const Seat seat = map->seat(rank);
    EXPECT_EQ(seat.node, cyclic[static_cast<size_t>(rank)]);
    EXPECT_EQ(map->rank_at(seat.node, seat.local), rank);
  }
  EXPECT_EQ(map->rank_at(0, 2), 5);
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{}, {0, 2}, {0, -1}, {3}}) {
    EXPECT_EQ(NodeMap::of_ranks(wrong).status().code(), Code::kInvalidArgument);
  }
  EXPECT_FALSE(NodeMap::in_blocks(std::vector<int32_t>{2, 0}).ok());
}

TEST(NodeMap, IsTheSameOfRunsAsOfRanks) {
  const std::vector<std::vector<int32_t>> placements = {
      {0}, {0, 0, 0, 1, 2, 2}, {0, 1, 2, 0, 1, 0}, {0, 0, 1, 0}, {1, 0}};
  for (const std::vector<int32_t>& node_of : placements) {
    std::vector<NodeRun> runs;
    for (const int32_t node : node_of) {
      if (runs.empty() || runs.back().node != node) runs.push_back({node, 0});
      ++runs.back().ranks;
    }
    const auto expected = NodeMap::of_ranks(node_of), found = NodeMap::of_runs(runs);
    ASSERT_TRUE(expected.ok() && found.ok()) << found.status().to_string();
    EXPECT_EQ(found->memory_bytes(), expected->memory_bytes());
    for (Rank rank = 0; rank < expected->ranks(); ++rank) {
      EXPECT_EQ(found->seat(rank).node, expected->seat(rank).node);
      EXPECT_EQ(found->seat(rank).local, expected->seat(rank).local);
    }
  }
  EXPECT_EQ(NodeMap::of_runs(std::vector<NodeRun>{{0, 1}, {1, 3}, {0, 1}})->ranks_on_fullest(), 3);
  for (const std::vector<NodeRun>& wrong : {std::vector<NodeRun>{},
                                            {{0, 0}},
                                            {{0, 1}, {2, 1}},
                                            {{-1, 1}},
                                            {{0, 1}, {0x7fffffff, 1}},
                                            {{0, 1 << 30}}}) {
    EXPECT_EQ(NodeMap::of_runs(wrong).status().code(), Code::kInvalidArgument);
  }
}

TEST(NodeMap, RemoteNodesAreSpreadOverLocalRanks) {
  const NodeMap map = blocks(std::vector<int32_t>(4096, 32));
  std::map<Rank, int> remote_links;
  for (int32_t other = 0; other < 4096; ++other) {
    if (other == 1234) continue;
    const Rank here = map.representative(1234, other);
    EXPECT_EQ(map.seat(here).node, 1234);
    ++remote_links[here];
  }
  EXPECT_EQ(remote_links.size(), 32u);
  for (const auto& [rank, links] : remote_links) EXPECT_LE(links, 128) << rank;
  EXPECT_LE(map.memory_bytes(), 17'000u);
}

}  // namespace
}  // namespace swale::net::node_map_test
