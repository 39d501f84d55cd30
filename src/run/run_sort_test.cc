#include "run/run_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "run/memtable.h"

namespace swale::run {
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
  auto scratch = RunScratch::create(std::max<size_t>(1, entries.size()));
  ASSERT_TRUE(scratch.ok());
  DigitCounts counts{};
  for (const uint64_t entry : entries) ++counts[top_digit(entry)];
  EntrySorter sorter(entries, counts, *scratch);
  for (size_t wanted = 0; wanted < expected.size(); wanted += 1 + expected.size() / 7) {
    sorter.sort_up_to(wanted);
    ASSERT_GE(sorter.sorted(), wanted);
    ASSERT_TRUE(std::equal(expected.begin(), expected.begin() + wanted, sorter.entries())) << wanted;
  }
  sorter.sort_up_to(expected.size() + 1);
  ASSERT_EQ(sorter.sorted(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sorter.entries()));
}

TEST(RunSort, SortsUniformHashesOfAnyCount) {
  Rng rng(2);
  for (const size_t count : {0, 1, 2, 3, 1023, 1024, 1025, 50'000, 300'000}) {
    expect_sorted_like_std(arriving(count, [&](size_t) { return rng.next(); }));
  }
}

TEST(RunSort, KeepsArrivalOrderOfEqualHashes) {
  Rng rng(3);
  const auto entries = arriving(100'000, [&](size_t) { return rng.below(100) << 57; });
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
}

}  // namespace
}  // namespace swale::run
