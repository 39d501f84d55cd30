#include "tier/engine/extent_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace swale::tier::extent_map_test {
namespace {

TEST(ExtentMap, CarvesTheMiddleOutOfAnExtent) {
  ExtentMap map;
  map.insert({100, 5000, 100, ExtentState::kDirty});
  std::vector<Extent> removed;
  map.carve(130, 150, [&](const Extent& extent) { removed.push_back(extent); });
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].address, 5030u);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.get(map.locate(0)).end(), 130u);
  const Extent right = map.get(map.locate(130));
  EXPECT_EQ(right.offset, 150u);
  EXPECT_EQ(right.address, 5050u);
  EXPECT_FALSE(map.overlaps(130, 150));
  EXPECT_TRUE(map.overlaps(129, 131));
}

TEST(ExtentMap, MarksOnlyExtentsOfTheGivenLogBytes) {
  ExtentMap map;
  map.insert({0, 1000, 100, ExtentState::kFlushing});
  map.carve(40, 60, [](const Extent&) {});
  map.insert({40, 9000, 20, ExtentState::kDirty});  // overwritten while its flush was under way
  EXPECT_EQ(map.mark(0, 100, 1000, ExtentState::kClean), 80u);
  EXPECT_EQ(map.get(map.locate(40)).state, ExtentState::kDirty);
  EXPECT_EQ(map.get(map.locate(0)).state, ExtentState::kClean);
  EXPECT_EQ(map.get(map.locate(60)).state, ExtentState::kClean);
}

TEST(ExtentMap, PacksTheLargestValues) {
  ExtentMap map;
  const Extent large{kFileBytesMax - 0xffffffff, kAddressMax - 1, 0xffffffff, ExtentState::kClean};
  map.insert(large);
  const Extent found = map.get(map.locate(kFileBytesMax - 2));
  EXPECT_EQ(found.offset, large.offset);
  EXPECT_EQ(found.address, large.address);
  EXPECT_EQ(found.length, large.length);
  EXPECT_EQ(found.state, large.state);
}

TEST(ExtentMap, FindsPlacesAtTheVeryEndOfAFile) {
  ExtentMap map;
  EXPECT_FALSE(map.valid(map.locate(kFileBytesMax - 1)));
  for (uint64_t i = 300; i > 0; --i) map.insert({kFileBytesMax - 2 * i, i, 1, ExtentState::kDirty});
  EXPECT_FALSE(map.valid(map.locate(kFileBytesMax - 1)));
  map.insert({kFileBytesMax - 1, 1000, 1, ExtentState::kDirty});
  for (const uint64_t offset : {kFileBytesMax - 1, kFileBytesMax - 2, kFileBytesMax - 4}) {
    const auto at = map.locate(offset);
    ASSERT_TRUE(map.valid(at));
    EXPECT_EQ(map.get(at).offset, offset);
    EXPECT_EQ(map.get(map.locate(offset, at)).offset, offset);
  }
  EXPECT_FALSE(map.valid(map.locate(kFileBytesMax)));
  EXPECT_FALSE(map.valid(map.locate(kFileBytesMax, {0, 0})));
}

// Extents of segments in turn: removing most segments must not leave a map of nearly empty leaves, nor one
// that finds what is gone.
TEST(ExtentMap, JoinsLeavesThatRemovalsHaveMadeSmall) {
  constexpr uint64_t kExtents = 20'000;
  constexpr uint64_t kSegment = 1 << 20;
  ExtentMap map;
  for (uint64_t i = 0; i < kExtents; ++i)
    map.insert(
        {i * 4096, i % 16 * kSegment + i, 4096, i % 2 == 0 ? ExtentState::kDirty : ExtentState::kClean});
  for (uint64_t segment = 0; segment < 14; ++segment)
    map.remove_addresses(segment * kSegment, (segment + 1) * kSegment);
  EXPECT_EQ(map.size(), kExtents / 8);
  EXPECT_LE(static_cast<double>(map.memory_bytes()) / static_cast<double>(map.size()), 40.0);
  for (uint64_t i = 0; i < kExtents; ++i)
    ASSERT_EQ(map.overlaps(i * 4096, i * 4096 + 4096), i % 16 >= 14) << i;
  size_t found = 0;
  for (auto at = map.find_dirty(map.locate(0), 14 * kSegment, kSegment); map.valid(at);
       at = map.find_dirty(map.next(at), 14 * kSegment, kSegment), ++found)
    ASSERT_EQ(map.get(at).offset / 4096 % 16, 14u);
  EXPECT_EQ(found, kExtents / 16);
  EXPECT_FALSE(map.valid(map.find_dirty(map.locate(0), 15 * kSegment, kSegment))) << "those are clean";
}

// Every operation against an array with the address of each byte.
TEST(ExtentMap, AgreesWithAnArrayOfBytes) {
  constexpr uint64_t kBytes = 20'000;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Rng rng(seed);
    ExtentMap map;
    std::vector<uint64_t> model(kBytes, 0);
    uint64_t address = 1;
    for (int step = 0; step < 6000; ++step) {
      const uint64_t from = rng.below(kBytes - 1);
      const uint64_t to =
          from + 1 + rng.below(std::min<uint64_t>(kBytes - from - 1, step % 50 == 0 ? 3000 : 12) + 1);
      const uint64_t end = std::min(to, kBytes);
      uint64_t before = 0, removed = 0;
      for (uint64_t i = from; i < end; ++i) before += model[i] != 0;
      map.carve(from, end, [&](const Extent& extent) {
        removed += extent.length;
        for (uint64_t i = 0; i < extent.length; ++i) ASSERT_EQ(model[extent.offset + i], extent.address + i);
      });
      ASSERT_EQ(removed, before);
      std::fill(model.begin() + static_cast<ptrdiff_t>(from), model.begin() + static_cast<ptrdiff_t>(end), 0);
      if (rng.chance(4, 5)) {
        map.insert({from, address, static_cast<uint32_t>(end - from), ExtentState::kDirty});
        for (uint64_t i = from; i < end; ++i) model[i] = address++;
      }
      if (step % 997 == 0)
        map.remove_if([&](const Extent& extent) {
          if (extent.address % 3 != 0) return false;
          std::fill_n(model.begin() + static_cast<ptrdiff_t>(extent.offset), extent.length, 0);
          return true;
        });
    }
    std::vector<uint64_t> found(kBytes, 0);
    size_t extents = 0;
    map.visit(0, kBytes, [&](const Extent& extent) {
      ++extents;
      for (uint64_t i = 0; i < extent.length; ++i) found[extent.offset + i] = extent.address + i;
    });
    EXPECT_EQ(found, model) << "seed " << seed;
    EXPECT_EQ(extents, map.size());
  }
}

// 40 GB in requests of 256 KiB, in random order: what the paper's 3 MB of AVL tree hold (section 2.5).
TEST(ExtentMap, NeedsAtMost24BytesForARandomExtent) {
  constexpr uint64_t kExtents = 163'840;
  std::vector<uint64_t> order(kExtents);
  for (uint64_t i = 0; i < kExtents; ++i) order[i] = i;
  Rng rng(7);
  for (uint64_t i = kExtents; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  ExtentMap map;
  for (const uint64_t i : order) map.insert({i << 18, i << 18, 1u << 18, ExtentState::kDirty});
  EXPECT_EQ(map.size(), kExtents);
  EXPECT_LE(static_cast<double>(map.memory_bytes()) / kExtents, 24.0);
  ExtentMap growing;
  for (uint64_t i = 0; i < kExtents; ++i) growing.insert({i << 18, i << 18, 1u << 18, ExtentState::kDirty});
  EXPECT_LE(static_cast<double>(growing.memory_bytes()) / kExtents, 17.0);
}

}  // namespace
}  // namespace swale::tier::extent_map_test
