#include "sim/shuffle_sim.h"

#include <gtest/gtest.h>

#include <cmath>

namespace swale::sim::shuffle_sim_test {
namespace {

ShuffleSimParams params_of(ShuffleMethod method) {
  ShuffleSimParams params;
  params.machine = scaled(second_machine(), 1.0 / 32);
  params.method = method;
  params.nodes = 4;
  params.ranks_per_node = 8;
  params.records_per_rank = 3000;
  return params;
}

ShuffleSimResult result_of(const ShuffleSimParams& params) {
  const Result<ShuffleSimResult> result = run_shuffle(params);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : ShuffleSimResult{};
}

constexpr ShuffleMethod kMethods[] = {ShuffleMethod::kBase, ShuffleMethod::kIndirect, ShuffleMethod::kLossy};

TEST(ShuffleSim, EveryMethodReachesStorageByBothRoutes) {
  for (const ShuffleMethod method : kMethods) {
    for (const bool three_hop : {true, false}) {
      ShuffleSimParams params = params_of(method);
      params.three_hop = three_hop;
      const ShuffleSimResult result = result_of(params);
      EXPECT_EQ(result.records, 32 * 3000.0);
      EXPECT_GT(result.stored_bytes, result.data_bytes);
      EXPECT_LT(result.stored_bytes, 1.8 * result.data_bytes);
      EXPECT_GT(result.remote_frames, 0);
    }
  }
}

TEST(ShuffleSim, OneRankStoresAloneAndSendsNothing) {
  for (const ShuffleMethod method : {ShuffleMethod::kBase, ShuffleMethod::kIndirect}) {
    ShuffleSimParams params = params_of(method);
    params.nodes = params.ranks_per_node = 1;
    params.three_hop = false;
    const ShuffleSimResult result = result_of(params);
    EXPECT_EQ(result.wire_bytes, 0);
    EXPECT_GT(result.stored_bytes, result.data_bytes);
  }
}

TEST(ShuffleSim, TheSameRunTakesTheSameTime) {
  const ShuffleSimParams params = params_of(ShuffleMethod::kLossy);
  const ShuffleSimResult first = result_of(params), second = result_of(params);
  EXPECT_EQ(first.total_s, second.total_s);
  EXPECT_EQ(first.events, second.events);
}

// Records move in base, keys and pointers in indirect, keys in lossy.
TEST(ShuffleSim, TheMethodsDifferInWhatTheySend) {
  const ShuffleSimResult base = result_of(params_of(ShuffleMethod::kBase));
  const ShuffleSimResult indirect = result_of(params_of(ShuffleMethod::kIndirect));
  const ShuffleSimResult lossy = result_of(params_of(ShuffleMethod::kLossy));
  EXPECT_LT(indirect.wire_bytes, 0.5 * base.wire_bytes);
  EXPECT_LT(lossy.wire_bytes, 0.5 * indirect.wire_bytes);
}

TEST(ShuffleSim, TheModelIsNearTheRun) {
  for (const ShuffleMethod method : kMethods) {
    const ShuffleSimParams params = params_of(method);
    const ShuffleSimResult result = result_of(params);
    const ShuffleTime model = shuffle_time(params.machine, job_of(params), load_of(params, result));
    EXPECT_LT(std::abs(model.total_s / result.total_s - 1), 0.25)
        << kShuffleMethodNames[static_cast<int>(method)] << ": " << model.total_s << " " << result.total_s;
  }
}

// A slower network shows: the simulation does not only count bytes.
TEST(ShuffleSim, ASlowerNetworkTakesLonger) {
  ShuffleSimParams params = params_of(ShuffleMethod::kBase);
  const double quick = result_of(params).total_s;
  params.machine.wire_bytes_per_s_64 /= 30;
  EXPECT_GT(result_of(params).total_s, 3 * quick);
}

}  // namespace
}  // namespace swale::sim::shuffle_sim_test
