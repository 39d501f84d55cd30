#include "imd/format/extrema_summary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace swale::imd::extrema_summary_test {
namespace {

run::FieldTotals totals(run::OrderKey minimum, run::OrderKey maximum) { return {{minimum, maximum}, 1, 2}; }

ExtremaSummary of_many(uint32_t partitions, uint64_t seed) {
  Rng rng(seed);
  ExtremaSummary summary;
  for (PartitionNumber p(0); p < partitions; ++p) {
    const uint64_t least = rng.below(1000);
    summary.merge(ExtremaSummary::of(
        p, {totals(least, least + rng.below(1000)), rng.chance(1, 2) ? totals(5, 5) : run::FieldTotals()}));
  }
  return summary;
}

TEST(ExtremaSummary, KeepsTheBestPartitionsWhateverTheOrderOfMerging) {
  std::vector<ExtremaSummary> parts;
  std::vector<ExtremaSummary::Entry> all;
  Rng rng(1);
  for (PartitionNumber p(0); p < 500; ++p) {
    const uint64_t greatest = 100 + rng.below(300);
    all.push_back({p, greatest});
    parts.push_back(ExtremaSummary::of(p, {totals(7, greatest)}));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.key != b.key ? a.key > b.key : a.partition < b.partition;
  });
  all.resize(ExtremaSummary::kPartitionsMax);
  for (int round = 0; round < 5; ++round) {
    std::vector<ExtremaSummary> left = parts;
    while (left.size() > 1) {  // a random tree
      const size_t i = rng.below(left.size() - 1);
      left[i].merge(left[i + 1]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    EXPECT_EQ(left[0].fields[0].best[0], all);
    EXPECT_EQ(left[0].fields[0].partitions, 500u);
    EXPECT_EQ(left[0].fields[0].nans, 500u);
    EXPECT_EQ(left[0].fields[0].absent, 1000u);
    EXPECT_EQ(left[0].fields[0].best[1].front(), (ExtremaSummary::Entry{PartitionNumber(0), 7}));
  }
}

TEST(ExtremaSummary, ReadsBackWhatItWrote) {
  for (const uint32_t partitions : {0u, 1u, 63u, 64u, 65u, 300u}) {
    const ExtremaSummary summary = of_many(partitions, partitions);
    const std::string file = summary.encode_file(77);
    EXPECT_LE(file.size(), kSummaryBytesMax);
    const auto back = ExtremaSummary::decode_file(file, 77, "file");
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, summary);
    EXPECT_EQ(ExtremaSummary::decode_file(file, 78, "file").status().code(), Code::kCorruption);
  }
}

TEST(ExtremaSummary, TheLargestFitsTheSmallestFrame) {
  ExtremaSummary summary;
  for (PartitionNumber p(0); p < 100; ++p) {
    summary.merge(ExtremaSummary::of(p, std::vector<run::FieldTotals>(run::kIndexedFieldsMax, totals(p, p))));
  }
  std::string bytes;
  summary.append_to(&bytes);
  EXPECT_EQ(bytes.size(), 1 + run::kIndexedFieldsMax * (22 + 2 * 64 * 12));
  EXPECT_LT(bytes.size() + 200, 17 * kKiB);
}

TEST(ExtremaSummary, EveryFlippedBitAndEveryCutIsNoticed) {
  std::string file = of_many(10, 3).encode_file(5);
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    file[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(ExtremaSummary::decode_file(file, 5, "file").ok()) << bit;
    file[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_FALSE(ExtremaSummary::decode_file(Bytes(file).substr(0, bytes), 5, "file").ok());
  }
}

TEST(ExtremaSummary, ImpossibleNumbersFailTheDecoder) {
  const auto fails = [](ExtremaSummary summary) {
    std::string bytes;
    summary.append_to(&bytes);
    Decoder in(bytes);
    ExtremaSummary::read(&in);
    return !in.finished();
  };
  ExtremaSummary good = of_many(10, 3);
  EXPECT_FALSE(fails(good));
  ExtremaSummary odd = good;
  std::swap(odd.fields[0].best[0].front(), odd.fields[0].best[0].back());
  EXPECT_TRUE(fails(odd));
  odd = good;
  odd.fields[0].partitions = 9;
  EXPECT_TRUE(fails(odd));
  odd = good;
  odd.fields.resize(run::kIndexedFieldsMax + 1);
  EXPECT_TRUE(fails(odd));
}

}  // namespace
}  // namespace swale::imd::extrema_summary_test
