// LockTable against a model that has a lock for each byte and owner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "fs/locks/lock_table.h"

namespace swale::fs::lock_table_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr LockType kNone = LockType::kNone, kRead = LockType::kRead, kWrite = LockType::kWrite;

OwnedLock range(NodeId node, uint64_t owner, LockType type, uint64_t begin, uint64_t end) {
  return {node, {LockKind::kRange, type, begin, end, owner, static_cast<uint32_t>(owner)}};
}
OwnedLock whole(NodeId node, uint64_t owner, LockType type) {
  return {node, {LockKind::kWhole, type, 0, kLockEnd, owner, static_cast<uint32_t>(owner)}};
}
std::vector<OwnedLock> all(const LockTable& table) {
  std::vector<OwnedLock> locks;
  table.visit([&](const OwnedLock& each) { locks.push_back(each); });
  return locks;
}

TEST(LockTable, AnUnlockInTheMiddleSplitsAndALockThereJoins) {
  LockTable table;
  table.set(range(1, 5, kWrite, 0, 100));
  table.set(range(1, 5, kNone, 40, 60));
  EXPECT_THAT(all(table), ElementsAre(range(1, 5, kWrite, 0, 40), range(1, 5, kWrite, 60, 100)));
  table.set(range(1, 5, kWrite, 40, 60));
  EXPECT_THAT(all(table), ElementsAre(range(1, 5, kWrite, 0, 100)));
  table.set(range(1, 5, kRead, 10, 20));
  EXPECT_THAT(all(table), ElementsAre(range(1, 5, kWrite, 0, 10), range(1, 5, kRead, 10, 20),
                                      range(1, 5, kWrite, 20, 100)));
  EXPECT_FALSE(table.in_the_way(range(2, 5, kRead, 10, 20)));
  EXPECT_EQ(table.in_the_way(range(2, 5, kRead, 10, 21)), range(1, 5, kWrite, 20, 100));
  table.end({1, 5}, LockKind::kRange);
  EXPECT_TRUE(table.empty());
}

TEST(LockTable, OwnersOfTwoNodesAreTwoAlsoIfTheirNumbersAreOne) {
  LockTable table;
  table.set(range(1, 5, kWrite, 0, 10));
  EXPECT_FALSE(table.in_the_way(range(1, 5, kWrite, 0, 10)));
  EXPECT_TRUE(table.in_the_way(range(2, 5, kWrite, 9, 11)));
  EXPECT_FALSE(table.in_the_way(range(2, 5, kWrite, 10, kLockEnd)));
  table.end_node(1);
  EXPECT_TRUE(table.empty());
}

TEST(LockTable, LocksOfFlockAndOfFcntlAreApart) {
  LockTable table;
  table.set(whole(1, 5, kWrite));
  EXPECT_FALSE(table.in_the_way(range(2, 6, kWrite, 0, kLockEnd)));
  EXPECT_TRUE(table.in_the_way(whole(2, 6, kRead)));
  table.set(range(2, 6, kWrite, 0, 10));
  EXPECT_THAT(table.nodes(), ElementsAre(1, 2));
  table.end({1, 5}, LockKind::kRange);
  EXPECT_TRUE(table.in_the_way(whole(2, 6, kRead)));
  table.end({1, 5}, LockKind::kWhole);
  EXPECT_FALSE(table.in_the_way(whole(2, 6, kWrite)));
}

// How often table and model differ.
uint64_t differences(uint64_t seed, bool unlocks_too_little) {
  constexpr size_t kOwners = 4, kBytes = 16;
  LockTable table;
  LockType model[kOwners][kBytes + 1] = {};  // the last one: all behind
  Rng rng(seed);
  uint64_t wrong = 0;
  for (int step = 0; step < 2'000; ++step) {
    const uint64_t owner = rng.below(kOwners), begin = rng.below(kBytes);
    const uint64_t end = rng.chance(1, 6) ? kLockEnd : begin + 1 + rng.below(kBytes - begin);
    const uint64_t last = std::min<uint64_t>(end, kBytes + 1);
    const auto type = static_cast<LockType>(rng.below(3));
    OwnedLock wanted = range(static_cast<NodeId>(owner % 2), owner, type, begin, end);
    bool taken = false;
    for (size_t other = 0; other < kOwners; ++other)
      for (uint64_t byte = begin; other != owner && byte < last; ++byte)
        taken = taken || (type != kNone && model[other][byte] != kNone &&
                          (type == kWrite || model[other][byte] == kWrite));
    wrong += table.in_the_way(wanted).has_value() != taken;
    wrong += table.owners_in_the_way(wanted).empty() == taken;
    if (taken) continue;
    for (uint64_t byte = begin; byte < last; ++byte) model[owner][byte] = type;
    if (unlocks_too_little && type == kNone && end - begin > 1) ++wanted.lock.begin;
    table.set(wanted);
    if (rng.chance(1, 50)) {
      table.end(wanted.owner(), LockKind::kRange);
      std::fill(std::begin(model[owner]), std::end(model[owner]), kNone);
    }
    size_t ranges = 0;  // whose neighbours differ
    for (const auto& bytes : model)
      for (size_t byte = 0; byte <= kBytes; ++byte)
        ranges += bytes[byte] != kNone && (byte == 0 || bytes[byte - 1] != bytes[byte]);
    wrong += table.count() != ranges;
  }
  return wrong;
}

TEST(LockTable, IsWhatAModelOfEachByteIs) {
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(differences(seed, false), 0u) << seed;
}

TEST(LockTable, CanaryAnUnlockThatLeavesAByte) { EXPECT_GT(differences(1, true), 0u); }

}  // namespace
}  // namespace swale::fs::lock_table_test
