#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>

namespace swale::rng_test {
namespace {

TEST(Rng, GivesTheSequenceOfThePaper) {
  Rng rng(1234567);  // the published test vector of SplitMix64
  EXPECT_EQ(rng.next(), 6457827717110365317u);
  EXPECT_EQ(rng.next(), 3203168211198807973u);
  EXPECT_EQ(rng.next(), 9817491932198370423u);
}

TEST(Rng, BelowIsInRangeAndEven) {
  Rng rng(1);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, ChanceHoldsItsOdds) {
  Rng rng(1);
  int hits = 0;
  for (int i = 0; i < 40000; ++i) hits += rng.chance(1, 4) ? 1 : 0;
  EXPECT_NEAR(hits, 10000, 500);
  EXPECT_TRUE(rng.chance(1, 1));
  EXPECT_FALSE(rng.chance(0, 1));
}

}  // namespace
}  // namespace swale::rng_test
