// The shard beside a model that knows every byte, over many seeds. SWALE_META_SEEDS multiplies their number
// (make test-long).
#include <gtest/gtest.h>

#include <cstdlib>

#include "meta/index/testing/shard_model.h"

namespace swale::meta::shard_model_test {
namespace {

uint64_t seeds(uint64_t few) {
  const char* const factor = std::getenv("SWALE_META_SEEDS");
  return factor == nullptr ? few : few * std::strtoull(factor, nullptr, 10);
}

TEST(ShardModel, AnswersAsABytePerByteMap) {
  uint64_t checks = 0, retired = 0;
  for (uint64_t seed = 1; seed <= seeds(40); ++seed) {
    const model::Report report = model::run(seed, 2000, {});
    ASSERT_EQ(report.problem, "") << "seed " << seed;
    checks += report.checks;
    retired += report.retired;
  }
  std::printf("%llu answers were checked, relocations were retired %llu times\n",
              static_cast<unsigned long long>(checks), static_cast<unsigned long long>(retired));
  EXPECT_GT(retired, 10u);
}

TEST(ShardModel, KeepsEveryAcknowledgedPutWhenPowerFails) {
  uint64_t crashes = 0, torn = 0;
  for (uint64_t seed = 1; seed <= seeds(60); ++seed) {
    const model::Report report = model::run(1000 + seed, 1500, {.crash_percent = 100});
    ASSERT_EQ(report.problem, "") << "seed " << seed;
    crashes += report.crashes;
    torn += report.torn;
  }
  std::printf("%llu crashes, %llu torn logs\n", static_cast<unsigned long long>(crashes),
              static_cast<unsigned long long>(torn));
  EXPECT_GT(crashes, 100u);
  EXPECT_GT(torn, 0u);
}

// Every call of storage fails once, from each call on.
TEST(ShardModel, SurvivesAFailureOfEachCall) {
  const uint64_t calls = model::run(5, 400, {}).calls;
  ASSERT_GT(calls, 100u);
  uint64_t visited = 0;
  for (uint64_t call = 1; call <= calls; call += seeds(1) > 1 ? 1 : 3, ++visited) {
    const model::Report report = model::run(5, 400, {.failing_call = call});
    ASSERT_EQ(report.problem, "") << "call " << call;
  }
  std::printf("%llu of %llu calls failed\n", static_cast<unsigned long long>(visited),
              static_cast<unsigned long long>(calls));
}

// The disk is full for a while, again and again: nothing acknowledged is lost, what was refused is not there,
// and the shard goes on.
TEST(ShardModel, GoesOnWhenAFullDiskHasSpaceAgain) {
  uint64_t voided = 0, refused = 0, crashes = 0;
  for (uint64_t seed = 1; seed <= seeds(40); ++seed) {
    const model::Report report =
        model::run(2000 + seed, 2000, {.crash_percent = seed % 2 == 0 ? 60u : 0u, .full_disk = true});
    ASSERT_EQ(report.problem, "") << "seed " << seed;
    voided += report.voided;
    refused += report.refused;
    crashes += report.crashes;
  }
  std::printf("%llu commits and %llu puts found no space, %llu crashes\n",
              static_cast<unsigned long long>(voided), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(crashes));
  EXPECT_GT(voided, 100u);
  EXPECT_GT(refused, 10u);
}

TEST(ShardModel, CanaryALostGroupIsFoundOut) {
  EXPECT_NE(model::run(2001, 2000, {.full_disk = true, .forgets_void = true}).problem, "");
}

TEST(ShardModel, CanaryALyingDiskIsFoundOut) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed)
    found += model::run(seed, 1500, {.crash_percent = 100, .lying_sync = true}).problem.empty() ? 0 : 1;
  EXPECT_GT(found, 0u);
}

TEST(ShardModel, CanaryAWrongByteIsFoundOut) {
  EXPECT_NE(model::run(1, 500, {.wrong_oracle = true}).problem, "");
}

}  // namespace
}  // namespace swale::meta::shard_model_test
