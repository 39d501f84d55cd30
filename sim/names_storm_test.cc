#include "sim/names_storm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace swale::sim::names_storm_test {
namespace {

// root_requests_per_storm: 3 operations, 4 nodes, 2 waves at most.
TEST(NamesStorm, SixtyFourProcessesOnFourHostsCostTheRootTwentyFourRequests) {
  uint64_t most = 0, sum = 0;
  constexpr uint64_t kSeeds = 50;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    NamesStormParams params;
    params.seed = seed;
    const NamesStormResult result = run_names_storm(params);
    EXPECT_EQ(result.answered, 128u) << seed;
    most = std::max(most, result.at_root);
    sum += result.at_root;
  }
  std::printf("root_requests_per_storm: %.1f on average, %lu at most\n",
              static_cast<double>(sum) / static_cast<double>(kSeeds), static_cast<unsigned long>(most));
  EXPECT_LE(most, 24u);
}

TEST(NamesStorm, CanaryProcessesThatAskForThemselvesCostThreeRequestsEach) {
  NamesStormParams params;
  params.combines = false;
  const NamesStormResult result = run_names_storm(params);
  EXPECT_EQ(result.answered, 128u);
  EXPECT_EQ(result.at_root, 192u);
}

}  // namespace
}  // namespace swale::sim::names_storm_test
