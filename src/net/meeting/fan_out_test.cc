#include "net/meeting/fan_out.h"

#include <gtest/gtest.h>

namespace swale::net::fan_out_test {
namespace {

TEST(FanOut, EveryRankButTheRootIsTheChildOfItsParent) {
  for (const int32_t size : {1, 2, 8, 9, 10, 73, 74, 1000}) {
    size_t children = 0;
    for (Rank rank = 0; rank < size; ++rank) {
      const FanOut tree{rank, size};
      EXPECT_LE(tree.child_count(), FanOut::kChildrenMax);
      for (const Rank child : tree.children()) {
        EXPECT_TRUE(tree.is_child(child));
        EXPECT_TRUE(tree.is_neighbour(child));
        const FanOut below{child, size};
        EXPECT_EQ(below.parent(), rank);
        EXPECT_TRUE(below.is_neighbour(rank));
        EXPECT_FALSE(below.is_child(rank));
        ++children;
      }
      EXPECT_FALSE(tree.is_neighbour(rank));
    }
    EXPECT_EQ(children, static_cast<size_t>(size - 1));
  }
}

// first_child does not overflow, and a rank that is not in the job is nobody's child.
TEST(FanOut, HoldsForTheLargestJobs) {
  constexpr int32_t kSize = 2'147'483'647;
  EXPECT_EQ((FanOut{kSize - 1, kSize}).child_count(), 0);
  EXPECT_EQ((FanOut{0, kSize}).child_count(), 8);
  EXPECT_FALSE((FanOut{0, 3}).is_child(3));
}

}  // namespace
}  // namespace swale::net::fan_out_test
