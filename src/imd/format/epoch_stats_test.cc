#include "imd/format/epoch_stats.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace swale::imd::epoch_stats_test {
namespace {

TEST(EpochStats, CountersHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const StatRow& row : stat_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(stat_row(row.name)->stat, row.stat);
    EXPECT_TRUE(row.unit.empty() || row.unit == "ns" || row.unit == "bytes") << row.unit;
    EXPECT_FALSE(row.help.empty());
  }
  EXPECT_EQ(names.size(), kStatCount);
  EXPECT_EQ(stat_row("append.nonsense"), nullptr);
}

// Any tree of merges, in any order, gives what one pass over all ranks gives.
TEST(EpochStats, MergingInAnyOrderSaysTheSame) {
  constexpr net::Rank kRanks = 37;
  Rng rng(5);
  std::vector<EpochStats> parts;
  MergedStat expected{.sum = 0, .min = UINT64_MAX, .max = 0, .min_rank = 0, .max_rank = 0};
  for (net::Rank rank = 0; rank < kRanks; ++rank) {
    RankStats stats;
    const uint64_t value = rng.below(10);  // so that least and greatest have several ranks
    stats.add(Stat::kSortNanos, value);
    parts.push_back(EpochStats::of(rank, stats));
    expected.sum += value;
    if (value < expected.min) expected.min = value, expected.min_rank = rank;
    if (value > expected.max) expected.max = value, expected.max_rank = rank;
  }
  size_t orders = 0;
  for (int repeat = 0; repeat < 50; ++repeat, ++orders) {
    std::vector<EpochStats> left = parts;
    while (left.size() > 1) {
      const size_t from = rng.below(left.size());
      EpochStats part = left[from];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(from));
      left[rng.below(left.size())].merge(part);
    }
    EXPECT_EQ(left[0].ranks, 37u);
    EXPECT_EQ(left[0].at(Stat::kSortNanos), expected);
    EXPECT_EQ(left[0].at(Stat::kAppendWaits), MergedStat{}) << "the lowest rank is named for what all have";
  }
  std::printf("%zu orders of merging\n", orders);
}

TEST(EpochStats, OfNobodyChangesNothing) {
  RankStats stats;
  stats.add(Stat::kSortRuns, 3);
  EpochStats merged = EpochStats::of(4, stats);
  const EpochStats before = merged;
  merged.merge({});
  EXPECT_EQ(merged, before);
  EpochStats nobody;
  nobody.merge(before);
  EXPECT_EQ(nobody, before);
}

TEST(EpochStats, MarksAreTheGreaterAndOthersAdded) {
  RankStats one;
  one.raise(Stat::kDeliveryFramesMax, 7);
  one.raise(Stat::kDeliveryFramesMax, 5);
  one.add(Stat::kSortRuns, 2);
  RankStats other;
  other.raise(Stat::kDeliveryFramesMax, 6);
  other.add(Stat::kSortRuns, 3);
  one.merge(other);
  EXPECT_EQ(one.value(Stat::kDeliveryFramesMax), 7u);
  EXPECT_EQ(one.value(Stat::kSortRuns), 5u);
}

TEST(EpochStats, BytesComeBackAndUnknownCountersArePassedOver) {
  RankStats stats;
  for (const StatRow& row : stat_rows())
    stats.add(row.stat, uint64_t{1} << (static_cast<size_t>(row.stat) * 2));
  const EpochStats here = EpochStats::of(70'000, stats);
  std::string bytes;
  here.append_to(&bytes);
  {
    Decoder in(bytes);
    EXPECT_EQ(EpochStats::read(&in), here);
    EXPECT_TRUE(in.finished());
  }
  // As a newer build would send it: one counter more.
  std::string newer = bytes;
  newer[4] = static_cast<char>(kStatCount + 1);
  append_u16(&newer, 4'000);
  for (int i = 0; i < 5; ++i) append_varint(&newer, 9);
  Decoder in(newer);
  EXPECT_EQ(EpochStats::read(&in), here);
  EXPECT_TRUE(in.finished());
  for (size_t length = 0; length < bytes.size(); ++length) {
    Decoder cut(Bytes(bytes).substr(0, length));
    EpochStats::read(&cut);
    EXPECT_FALSE(cut.finished()) << length;
  }
  EXPECT_LT(bytes.size(), 1'000u);
}

}  // namespace
}  // namespace swale::imd::epoch_stats_test
