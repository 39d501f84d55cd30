// Which epochs a pass takes, and which clusters it replaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "imd/testing/test_optimize.h"
#include "io/memory_device.h"

namespace swale::imd::pass_choice_test {
namespace {

using test::Answers;
using test::ask_directory;
using test::expect_verified;
using test::list_of;
using test::optimize;
using test::small_pass;
using test::write_job;

// Four of similar length become one: 16 passes of one epoch each copy 24 more, and no more than six
// clusters are ever asked.
TEST(PassChoice, FourClustersOfSimilarLengthBecomeOne) {
  io::MemoryDevice device;
  uint64_t copied = 0;
  std::vector<size_t> counts;
  for (uint64_t pass = 0; pass < 16; ++pass) {
    write_job(device, {.epochs = 1, .records = 50, .keys = 10, .one_size = true}, 1 + pass);
    const Answers before = ask_directory(device, 10);
    const auto report = optimize(device);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    copied += report->plan.epochs;
    counts.push_back(list_of(device).clusters.size());
    EXPECT_TRUE(ask_directory(device, 10) == before) << pass;
  }
  EXPECT_THAT(counts, testing::ElementsAre(1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 1));
  EXPECT_EQ(copied, 12u + 3 * 4 + 16);
  expect_verified(device, 1);
}

// Of 180 runs; 32 MiB have chunks for 170. Clusters of them are not merged, either.
TEST(PassChoice, APassTakesAsManyEpochsAsFitIntoItsMemory) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .epochs = 90, .records = 40, .keys = 10, .one_size = true}, 1);
  const Answers before = ask_directory(device, 10);
  const auto first = optimize(device);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->plan.epochs, 85u);
  EXPECT_EQ(first->plan.epochs_left, 5u);
  const auto second = optimize(device);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(second->plan.epochs, 5u);
  EXPECT_EQ(second->plan.epochs_left, 0u);
  EXPECT_EQ(optimize(device)->number, 0u);
  EXPECT_TRUE(ask_directory(device, 10) == before);
  expect_verified(device, 2);
  OptimizeOptions full = small_pass();
  full.full = true;
  EXPECT_EQ(optimize(device, full)->plan.epochs, 90u);
}

TEST(PassChoice, ClustersThatDoNotFitIntoMemoryStay) {
  for (const bool fit : {true, false}) {
    io::MemoryDevice device;
    for (uint64_t job = 1; job <= 4; ++job) {
      const uint32_t epochs = fit ? 21 : 22;  // of two runs: 168, or 176
      write_job(device, {.ranks = 2, .epochs = epochs, .records = 40, .keys = 10, .one_size = true}, job);
      ASSERT_TRUE(optimize(device).ok());
    }
    EXPECT_EQ(list_of(device).clusters.size(), fit ? 1u : 4u);
    expect_verified(device, fit ? 1 : 4);
  }
}

}  // namespace
}  // namespace swale::imd::pass_choice_test
