#include "run/run_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "run/memtable.h"
#include "run/testing/run_test_support.h"

namespace swale::run::run_sort_test {
namespace {

// Entries of records that arrive one after the other, with these hashes.
template <class HashFn>
std::vector<uint64_t> arriving(size_t count, HashFn&& hash) {
  std::vector<uint64_t> entries;
  for (size_t i = 0; i < count; ++i) entries.push_back((hash(i) & ~kEntryOffsetMask) | i * 50 % (1 << 24));
  return entries;
}

void expect_sorted_like_std(std::vector<uint64_t> entries) {
  std::vector<uint64_t> expected = entries;
  std::sort(expected.begin(), expected.end());
  sort_bin(entries);
  EXPECT_EQ(entries, expected);
}

TEST(RunSort, SortsUniformHashesOfAnyCount) {
  Rng rng(2);
  for (const size_t count : {0, 1, 2, 3, 24, 25, 600, 2048, 2049, 300'000}) {
    expect_sorted_like_std(arriving(count, [&](size_t) { return rng.next() >> 8 | uint64_t{0xa5} << 56; }));
  }
}

TEST(RunSort, KeepsArrivalOrderOfEqualHashes) {
  Rng rng(3);
  const auto entries = arriving(100'000, [&](size_t) { return rng.below(100) << 49; });
  expect_sorted_like_std(entries);  // offsets ascend with arrival, so ascending entries are in arrival order
}

TEST(RunSort, SurvivesHotKeysAndKeysMadeToCollide) {
  Rng rng(4);
  expect_sorted_like_std(arriving(300'000, [](size_t) { return uint64_t{0x1234567890abcdef}; }));
  // Two hot keys that share 22 bits, alternating: quadratic for insertion alone.
  expect_sorted_like_std(arriving(300'000, [](size_t i) { return uint64_t{0xabcdef} << 40 | i % 2 << 30; }));
  // All prefixes equal, the bits below random, or descending.
  expect_sorted_like_std(arriving(300'000, [&](size_t) { return rng.next() >> 23; }));
  expect_sorted_like_std(arriving(300'000, [](size_t i) { return ~uint64_t{i} << 24 >> 20; }));
  // The same in bins that are sorted in the cache.
  expect_sorted_like_std(arriving(2000, [](size_t) { return uint64_t{0x1234567890abcdef}; }));
  expect_sorted_like_std(arriving(2000, [](size_t i) { return uint64_t{0xabcdef} << 40 | i % 2 << 30; }));
  expect_sorted_like_std(arriving(2000, [](size_t i) { return ~uint64_t{i} << 24 >> 20; }));
}

// Asked for any number of entries at a time, the sorter gives all of them once, in order.
TEST(RunSort, HandsOutAMemtableInOrder) {
  Rng rng(7);
  auto memtable = Memtable::create(kMiB, 40'000).value();
  auto scratch = RunScratch::create(40'000).value();
  while (test::append(memtable, test::random_bytes(rng, 8), "value")) {
  }
  for (int i = 0; i < 5000; ++i) test::append(memtable, "a hot key", "v");
  for (const size_t step : {1, 85, 3000, 100'000}) {
    EntrySorter sorter(memtable, scratch);
    std::vector<uint64_t> all;
    while (all.size() < memtable.count()) {
      const auto entries = sorter.peek(step);
      ASSERT_GE(entries.size(), std::min(step, memtable.count() - all.size()));
      const size_t taken = std::min(step, entries.size());
      all.insert(all.end(), entries.begin(), entries.begin() + static_cast<ptrdiff_t>(taken));
      sorter.pop(taken);
    }
    EXPECT_TRUE(sorter.peek(1).empty());
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  }
}

}  // namespace
}  // namespace swale::run::run_sort_test
