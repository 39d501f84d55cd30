#include "tier/traffic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tier/options.h"

namespace swale::tier {
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

TEST(RequestStream, APartialStreamHasAPercentageOfItsOwn) {
  RequestStream stream(128);
  EXPECT_EQ(stream.close_early(), 0);
  static_cast<void>(stream.add(0, 0, 10));
  static_cast<void>(stream.add(0, 10, 10));
  static_cast<void>(stream.add(0, 50, 10));
  EXPECT_DOUBLE_EQ(stream.close_early(), 0.5);
  EXPECT_EQ(stream.size(), 0u);
}

// The case study of ssdup-plus, section 2.3.2. Its ten percentages do not give its thresholds with any rounding; with one
// stream that is not printed, after the sixth, they give all ten.
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
}  // namespace swale::tier
