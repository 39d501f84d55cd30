#include "tier/policy/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"
#include "tier/engine/extent_map.h"
#include "tier/policy/options.h"

namespace swale::tier::traffic_test {
namespace {

TEST(RequestStream, CountsSeeksBetweenSortedWritesOfTheirOwnSizes) {
  RequestStream stream(4);
  EXPECT_FALSE(stream.add(0, 300, 50));
  EXPECT_FALSE(stream.add(0, 0, 100));
  EXPECT_FALSE(stream.add(0, 100, 150));  // joins the one before
  const auto sum = stream.add(0, 900, 10);
  ASSERT_TRUE(sum);
  EXPECT_EQ(*sum, 2u);  // 250 to 300, and 350 to 900
}

TEST(RequestStream, OverlapsAndRewritesCostNoSeekAndAChangeOfFileDoes) {
  RequestStream stream(5);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(stream.add(0, 0, 1000));
  EXPECT_FALSE(stream.add(0, 10, 20));
  EXPECT_FALSE(stream.add(0, 1000, 10));  // adjacent to the long one, not to the short one inside
  const auto sum = stream.add(1, 1010, 10);
  ASSERT_TRUE(sum);
  EXPECT_EQ(*sum, 1u);
}

// Streams of all shapes against the definition: what a stream covers, in pieces; one seek before each but the
// first.
TEST(RequestStream, CountsThePiecesOfWhatAStreamCovers) {
  Rng rng(5);
  for (int round = 0; round < 400; ++round) {
    const uint32_t requests = 2 + static_cast<uint32_t>(rng.below(300));
    const uint64_t unit = uint64_t{1} << rng.below(30);
    const uint64_t places = 1 + rng.below(1000);
    const uint64_t files = rng.chance(1, 2) ? 1 : 1 + rng.below(3);
    const bool outlier = rng.chance(1, 3);  // most requests in one bucket
    std::map<FileIndex, std::vector<std::pair<uint64_t, uint64_t>>> ranges;
    RequestStream stream(requests);
    std::optional<uint32_t> sum;
    for (uint32_t i = 0; i < requests; ++i) {
      const auto file = static_cast<FileIndex>(rng.below(files));
      const uint64_t offset = outlier && i == 0 ? kFileBytesMax / 2 : rng.below(places) * unit;
      const auto length =
          static_cast<uint32_t>(std::min<uint64_t>(kWriteBytesMax, (1 + rng.below(3)) * unit));
      ranges[file].emplace_back(offset, offset + length);
      sum = stream.add(file, offset, length);
      ASSERT_EQ(sum.has_value(), i + 1 == requests);
    }
    uint32_t pieces = 0;
    for (auto& [file, list] : ranges) {
      std::sort(list.begin(), list.end());
      uint64_t end = 0;
      for (size_t i = 0; i < list.size(); ++i) {
        pieces += i == 0 || list[i].first > end;
        end = std::max(end, list[i].second);
      }
    }
    ASSERT_EQ(*sum, pieces - 1) << "round " << round;
  }
}

TEST(RequestStream, APartialStreamHasAPercentageOfItsOwn) {
  RequestStream stream(128);
  EXPECT_EQ(stream.close_early(), 0);
  static_cast<void>(stream.add(0, 0, 10));
  static_cast<void>(stream.add(0, 10, 10));
  static_cast<void>(stream.add(0, 50, 10));
  EXPECT_DOUBLE_EQ(stream.close_early(), 0.5);
  EXPECT_EQ(stream.size(), 0u);
}

// The case study of ssdup-plus, section 2.3.2. Its ten percentages do not give its thresholds with any
// rounding; with one stream that is not printed, after the sixth, they give all ten.
TEST(AdaptiveThreshold, GivesTheThresholdsThatThePaperPrints) {
  const double printed[] = {0.5433, 0.5433, 0.5433, 0.5905, 0.5826, 0.5826, 0.5826, 0.5905, 0.5905, 0.6062};
  for (const uint32_t unprinted : {5u, 9u, 14u}) {  // p = 0.039 to 0.110
    DetectorOptions options;
    options.change_distance = 1;  // no change of pattern
    AdaptiveThreshold threshold(options);
    EXPECT_EQ(threshold.value(), 0.5);
    threshold.add(50);
    int i = 0;
    for (const uint32_t sum : {69u, 75u, 80u, 77u, 74u, unprinted, 79u, 79u, 79u, 86u}) {
      threshold.add(sum);
      EXPECT_LT(std::fabs(threshold.value() - printed[i]), 0.0002)
          << "stream " << i << ", unprinted " << unprinted;
      ++i;
    }
  }
}

TEST(AdaptiveThreshold, ForgetsWhenMostOfElevenStreamsDeviate) {
  AdaptiveThreshold threshold(DetectorOptions{});
  for (int i = 0; i < 40; ++i) threshold.add(10);
  EXPECT_EQ(threshold.streams(), 40u);
  for (int i = 0; i < 12; ++i) threshold.add(120);
  EXPECT_EQ(threshold.streams(), 1u);
  EXPECT_NEAR(threshold.value(), 120.0 / 127, 1e-9);
}

TEST(AdaptiveThreshold, KeepsItsListWhenFewStreamsDeviate) {
  AdaptiveThreshold threshold(DetectorOptions{});
  for (int i = 0; i < 40; ++i) threshold.add(i % 3 == 0 ? 64 : 10);
  EXPECT_EQ(threshold.streams(), 40u);
}

void add_stream(Traffic* traffic, bool random, uint64_t base) {
  for (uint64_t i = 0; i < 128; ++i) traffic->add(0, base + i * (random ? 1000 : 10), 10);
}

TEST(Traffic, AStreamDecidesAboutTheNextOne) {
  Traffic traffic(Traffic::Rule::kWatermarks, DetectorOptions{});
  EXPECT_FALSE(traffic.to_ssd());
  add_stream(&traffic, true, 0);
  EXPECT_EQ(traffic.ssd_bytes(), 0u) << "the first stream itself goes to the backing device";
  EXPECT_TRUE(traffic.to_ssd());
  add_stream(&traffic, false, 0);
  EXPECT_EQ(traffic.ssd_bytes(), 1280u);
  EXPECT_FALSE(traffic.to_ssd());
}

TEST(Traffic, EqualPercentagesKeepTheDevice) {
  Traffic traffic(Traffic::Rule::kAdaptive, DetectorOptions{});
  add_stream(&traffic, true, 0);  // p = 1 is the only element of the list, so the threshold too
  EXPECT_EQ(traffic.threshold(), 1);
  EXPECT_FALSE(traffic.to_ssd());
  for (int i = 0; i < 20; ++i) add_stream(&traffic, true, 0);
  EXPECT_FALSE(traffic.to_ssd());
  EXPECT_EQ(traffic.percentage_mean(), 1);
}

TEST(Options, NamesOfPoliciesAreFoundAgainAndMistakesAreRefused) {
  for (const Policy policy : {Policy::kBacking, Policy::kSsdBlocking, Policy::kSsdOverflowing, Policy::kSsdup,
                              Policy::kSsdupPlus, Policy::kSwale}) {
    const auto again = parse_policy(policy_name(policy));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, policy);
  }
  EXPECT_EQ(parse_policy("fast").status().code(), Code::kInvalidArgument);
  Options options;
  EXPECT_TRUE(options.validate().ok());
  options.segment_count = 1;
  EXPECT_FALSE(options.validate().ok());
  options = Options{};
  options.log_alignment = 100;
  EXPECT_FALSE(options.validate().ok());
}

}  // namespace
}  // namespace swale::tier::traffic_test
