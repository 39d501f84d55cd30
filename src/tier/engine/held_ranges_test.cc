#include "tier/engine/held_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "tier/engine/extent_map.h"

namespace swale::tier::held_ranges_test {
namespace {

TEST(HeldRanges, FindsARangeThatBeginsManyCellsBefore) {
  HeldRanges held;
  const uint64_t begin = 3 * kMiB + 5;
  EXPECT_TRUE(held.add_if_free(0, 7, begin, begin + kWriteBytesMax));
  EXPECT_TRUE(held.overlaps(7, begin + kWriteBytesMax - 1, begin + kWriteBytesMax));
  EXPECT_FALSE(held.overlaps(7, begin + kWriteBytesMax, begin + kWriteBytesMax + 1));
  EXPECT_TRUE(held.overlaps(7, begin - 1, begin + 1));
  EXPECT_FALSE(held.overlaps(7, begin - 1, begin));
  EXPECT_FALSE(held.overlaps(8, begin, begin + 1)) << "another file";
}

TEST(HeldRanges, TakesTheEndsOfAFile) {
  HeldRanges held;
  EXPECT_TRUE(held.add_if_free(0, 0, 0, 1));
  EXPECT_TRUE(held.add_if_free(1, 0, kFileBytesMax - kWriteBytesMax, kFileBytesMax));
  EXPECT_FALSE(held.add_if_free(2, 0, kFileBytesMax - 1, kFileBytesMax));
  std::vector<HeldRanges::Holder> found;
  held.find(0, 0, kFileBytesMax, &found);
  EXPECT_EQ(found, (std::vector<HeldRanges::Holder>{0, 1}));
}

TEST(HeldRanges, AHolderWithoutARangeMayBeRemoved) {
  HeldRanges held;
  held.remove(5);
  EXPECT_TRUE(held.add_if_free(9, 0, 100, 200));
  held.remove(5);
  held.remove(9);
  held.remove(9);
  EXPECT_EQ(held.size(), 0u);
  EXPECT_TRUE(held.add_if_free(5, 0, 150, 160));
}

// Every answer against a map, while the table grows and shrinks.
TEST(HeldRanges, AgreesWithAMapOfAllRanges) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Rng rng(seed);
    HeldRanges held;
    std::map<HeldRanges::Holder, std::pair<uint64_t, uint64_t>>
        model;  // of two files: the odd holders are file 1's
    const uint64_t span = seed % 2 == 0 ? 64 * kMiB : 64 * kKiB;
    const uint32_t holders = seed <= 2 ? 40 : 1000;
    for (int step = 0; step < 4000; ++step) {
      const auto holder = static_cast<HeldRanges::Holder>(rng.below(holders));
      const FileIndex file = holder % 2;
      const uint64_t offset = rng.below(span);
      const uint64_t end = offset + 1 + rng.below(rng.chance(1, 8) ? kWriteBytesMax : 4096);
      std::vector<HeldRanges::Holder> expected;
      for (const auto& [each, range] : model)
        if (each % 2 == file && range.first < end && range.second > offset) expected.push_back(each);
      std::sort(expected.begin(), expected.end(), [&](auto a, auto b) { return model[a] < model[b]; });
      std::vector<HeldRanges::Holder> found;
      held.find(file, offset, end, &found);
      ASSERT_EQ(found, expected);
      ASSERT_EQ(held.overlaps(file, offset, end), !expected.empty());
      if (model.erase(holder) > 0) {
        held.remove(holder);
      } else {
        const bool added = held.add_if_free(holder, file, offset, end);
        ASSERT_EQ(added, expected.empty());
        if (added) model[holder] = {offset, end};
      }
      ASSERT_EQ(held.size(), model.size());
    }
    EXPECT_GT(model.size(), 5u);
  }
}

}  // namespace
}  // namespace swale::tier::held_ranges_test
