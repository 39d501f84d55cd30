#include "sim/names_storm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace swale::sim::names_storm_test {
namespace {

// The most requests at the root, of 50 storms.
uint64_t most_of(NamesStormParams params, const char* name) {
  uint64_t most = 0, sum = 0;
  constexpr uint64_t kSeeds = 50;
  for (params.seed = 1; params.seed <= kSeeds; ++params.seed) {
    const NamesStormResult result = run_names_storm(params);
    EXPECT_EQ(result.answered, 128u) << params.seed;
    most = std::max(most, result.at_root);
    sum += result.at_root;
  }
  std::printf("%s: %.1f on average, %lu at most\n", name,
              static_cast<double>(sum) / static_cast<double>(kSeeds), static_cast<unsigned long>(most));
  return most;
}

// root_requests_per_storm: 3 operations, 4 nodes, 2 waves at most.
TEST(NamesStorm, SixtyFourProcessesOnFourHostsCostTheRootTwentyFourRequests) {
  EXPECT_LE(most_of({}, "root_requests_per_storm"), 24u);
}

// Messages may be quicker than processes come: then a node needs a third wave, and an operation may find its
// processes spread over more.
TEST(NamesStorm, ProcessesThatComeLaterThanAnswersCostAThirdWave) {
  NamesStormParams params;
  params.spread = 50'000;
  params.delay_min = 0, params.delay_more = 47'000;
  EXPECT_LE(most_of(params, "root_requests_per_storm, processes within 50 us, messages of 0 to 47"), 36u);
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
