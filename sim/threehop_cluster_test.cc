// Whole jobs on one thread whose records go by three hops, over many seeds. SWALE_SIM_SEEDS multiplies their
// number.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/test_cluster_checks.h"

namespace swale::sim::threehop_cluster_test {
namespace {

// A seed decides the shape of the job, nodes of unequal rank counts among them, as well as its schedule.
ClusterParams params_of(uint64_t seed) {
  static const std::vector<std::vector<int32_t>> kShapes = {{2, 2}, {1, 3, 2}, {3},         {1, 1, 1},
                                                            {4, 1}, {3, 3, 3}, {5, 1, 1, 1}};
  Rng rng(seed * 79 + 3);
  ClusterParams params;
  params.seed = seed;
  params.ranks_per_node = kShapes[seed % kShapes.size()];
  params.ranks = std::accumulate(params.ranks_per_node.begin(), params.ranks_per_node.end(), 0);
  params.ways = 1 + static_cast<uint32_t>(rng.below(2));
  params.frame_bytes = 17 * kKiB;
  params.epochs = 1 + static_cast<uint32_t>(rng.below(3));
  params.overlap = rng.chance(1, 2);
  params.records_per_epoch = rng.below(4) == 0 ? rng.below(30) : 500 + rng.below(6000);
  params.workload.keys = 1 + rng.below(1000);
  params.workload.variable_sizes = rng.chance(1, 2);
  params.workload.hot_key = rng.chance(1, 4);
  params.workload.large_values = rng.chance(1, 8);
  params.extrema = rng.chance(1, 4);
  params.layout = layout_of_seed(seed);
  return params;
}

void expect_committed(const ClusterParams& params) {
  io::MemoryDevice device;
  const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  expect_all_committed(params, *outcome);
  if (testing::Test::HasFatalFailure()) return;
  expect_whole(device, *outcome, params.seed);
}

TEST(ThreeHopCluster, EveryScheduleCommitsEverything) {
  for (uint64_t seed = 1; seed <= seeds(100); ++seed) {
    expect_committed(params_of(seed));
    if (HasFatalFailure()) return;
  }
}

// One rank's storage is a thousand times slower, and the buffers are as small as can be: everybody waits for
// it, and gets on.
TEST(ThreeHopCluster, AStuckReceiverWithTinyBuffersStopsNothingForGood) {
  for (uint64_t seed = 1; seed <= seeds(4); ++seed) {
    ClusterParams params = params_of(seed);
    params.extrema = false;
    params.layout = {};
    params.workload.variable_sizes = true;
    params.workload.keys = 50'000;
    params.epochs = 2;
    params.ways = 1;
    params.records_per_epoch = 5'000 * static_cast<uint64_t>(params.ranks);
    params.tiny_hops = true;
    params.slow = static_cast<net::Rank>(seed % static_cast<uint64_t>(params.ranks));
    params.silence_deadline = seconds(60);
    expect_committed(params);
    if (HasFatalFailure()) return;
  }
}

// Messages that a frame of these hops does not hold go to the value log: no record is refused.
TEST(ThreeHopCluster, RecordsThatAreLargerThanAFrameOfTheHopsAreKept) {
  for (uint64_t seed = 1; seed <= seeds(6); ++seed) {
    ClusterParams params = params_of(seed);
    params.tiny_hops = true;  // frames of 1 KiB
    params.extrema = false;
    params.workload.variable_sizes = true;
    params.workload.large_values = true;
    params.records_per_epoch = 3000;
    expect_committed(params);
    if (HasFatalFailure()) return;
  }
}

// Lost, doubled, altered and swapped frames: the epoch fails on every rank with a reason, or is committed
// right.
TEST(ThreeHopCluster, DamagedTrafficIsNeverCommitted) {
  const auto damaged = [](uint64_t seed) {
    ClusterParams params = params_of(seed);
    const FrameClass of = seed % 3 == 0 ? FrameClass::kControl : FrameClass::kData;
    params.faults.frames = {{static_cast<FrameFault>(1 + seed / 3 % 4), Rng(seed).below(20), of}};
    return params;
  };
  MetFaults met;
  damage_traffic(seeds(120), damaged, Ranks::kMayDiffer, &met);
  EXPECT_GT(met.hits, seeds(120) / 2);
  EXPECT_GE(met.failed * 10, met.hits * 6) << met.hits << " runs met their fault";
}

TEST(ThreeHopCluster, AFailedStorageRequestFailsTheEpochOnEveryRank) {
  uint64_t failed = 0;
  fail_storage(seeds(50), params_of, &failed);
  EXPECT_GT(failed, seeds(50) / 3);
}

// Whoever it is, a representative of its node or its leader: all others name it within the deadline.
TEST(ThreeHopCluster, AKilledRepresentativeIsNamedEverywhereWithinTheDeadline) {
  uint64_t reported = 0;
  for (uint64_t seed = 1; seed <= seeds(80); ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    Rng rng(seed);
    params.faults.killed = static_cast<net::Rank>(rng.below(static_cast<uint64_t>(params.ranks)));
    params.faults.kill_time = static_cast<Nanos>(rng.below(6'000'000));
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    for (net::Rank rank = 0; rank < params.ranks; ++rank) {
      const RankOutcome& result = outcome.ranks[static_cast<size_t>(rank)];
      if (rank == params.faults.killed) continue;
      ASSERT_TRUE(result.finished) << "seed " << seed << ": rank " << rank << " waits for ever";
      if (result.failure.ok()) continue;
      ++reported;
      EXPECT_NE(result.failure.message().find(fmt::format("rank {}", params.faults.killed)),
                std::string::npos)
          << result.failure.to_string();
      EXPECT_LE(result.finish_time, params.faults.kill_time + 3 * params.silence_deadline / 2)
          << "seed " << seed;
    }
    expect_whole(device, outcome, seed);
  }
  EXPECT_GT(reported, seeds(80) / 2);
}

// The end of an epoch takes a rank a few messages, whatever the number of ranks: no control message goes to
// everybody.
TEST(ThreeHopCluster, EndingAnEpochAndClosingTakeAFewMessagesARank) {
  const auto control_frames = [](int32_t nodes, uint32_t epochs) {
    io::MemoryDevice device;
    ClusterParams params;
    params.ranks_per_node.assign(static_cast<size_t>(nodes), 4);
    params.ranks = 4 * nodes;
    params.epochs = epochs;
    params.records_per_epoch = 0;
    params.memory_bytes = 4 * kMiB;
    const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    if (!outcome.ok()) return 0.0;
    for (const RankOutcome& rank : outcome->ranks) EXPECT_TRUE(rank.failure.ok()) << rank.failure.to_string();
    return static_cast<double>(outcome->control_frames) / params.ranks;
  };
  const double small = control_frames(2, 3) - control_frames(2, 1);
  const double large = control_frames(16, 3) - control_frames(16, 1);
  EXPECT_LE(large / 2, 12) << "of an epoch: 6 of the route's barriers, 2 ENDs, DURABLE and COMMITTED";
  EXPECT_LE(large, small * 1.3);
  EXPECT_GE(large / 2, 8) << "canary: frames are counted";
}

}  // namespace
}  // namespace swale::sim::threehop_cluster_test
