// What the tests of whole jobs ask of every run, by either route: the directory is whole, faults fail the
// epoch on all ranks or are harmless, and nobody waits for ever. Each function runs one job for each seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "io/memory_device.h"
#include "sim/checker.h"
#include "sim/cluster.h"
#include "sim/test_seeds.h"

namespace swale::sim {

inline constexpr char kDirectory[] = "/job/particles";
inline constexpr size_t kProbes = 20;

inline void expect_whole(io::Device& device, const ClusterOutcome& outcome, uint64_t seed) {
  for (const std::string& problem :
       check_directory(device, kDirectory, outcome.model, promised(outcome), kProbes))
    ADD_FAILURE() << "seed " << seed << ": " << problem;
}

inline void expect_all_committed(const ClusterParams& params, const ClusterOutcome& outcome) {
  for (const RankOutcome& rank : outcome.ranks) {
    ASSERT_TRUE(rank.failure.ok()) << "seed " << params.seed << ": " << rank.failure.to_string();
    ASSERT_TRUE(rank.finished) << "seed " << params.seed << ": a rank waits for ever";
    ASSERT_EQ(rank.epochs_ok, params.epochs);
  }
}

using ParamsOfSeed = std::function<ClusterParams(uint64_t seed)>;

// Runs that met their fault, and of these the ones that failed an epoch.
struct MetFaults {
  uint64_t hits = 0;
  uint64_t failed = 0;
};

// Whether all ranks of a run that fails must fail.
enum class Ranks { kMayDiffer, kAgree };

// Frames are lost, doubled, altered or swapped as `params_of` says: the epoch fails, or is committed right.
inline void damage_traffic(uint64_t count, const ParamsOfSeed& params_of, Ranks ranks, MetFaults* met) {
  for (uint64_t seed = 1; seed <= count; ++seed) {
    io::MemoryDevice device;
    const ClusterParams params = params_of(seed);
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    const auto came = [&](const FrameFaultPlan& plan) {
      return (plan.of == FrameClass::kData ? outcome.data_frames : outcome.control_frames) > plan.number;
    };
    const bool hit = std::any_of(params.faults.frames.begin(), params.faults.frames.end(), came);
    const auto has_failed = [](const RankOutcome& rank) { return !rank.failure.ok(); };
    const bool any_failed = std::any_of(outcome.ranks.begin(), outcome.ranks.end(), has_failed);
    for (const RankOutcome& rank : outcome.ranks) {
      ASSERT_TRUE(rank.finished) << "seed " << seed << ": a rank waits for ever";
      if (ranks == Ranks::kAgree) {
        ASSERT_EQ(has_failed(rank), any_failed) << "seed " << seed << ": ranks disagree";
      }
    }
    ASSERT_TRUE(hit || !any_failed) << "seed " << seed << ": " << outcome.ranks[0].failure.to_string();
    met->hits += hit ? 1 : 0;
    met->failed += any_failed ? 1 : 0;
    expect_whole(device, outcome, seed);
  }
}

// One storage request fails: the epoch fails on every rank, and all say why.
inline void fail_storage(uint64_t count, const ParamsOfSeed& params_of, uint64_t* failed) {
  for (uint64_t seed = 1; seed <= count; ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.faults.io_number = static_cast<int64_t>(Rng(seed).below(40));
    params.faults.io_status = error(Code::kNoSpace, Scope::kFile, "injected");
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    const bool hit = outcome.io_requests > static_cast<uint64_t>(params.faults.io_number);
    for (const RankOutcome& rank : outcome.ranks) {
      ASSERT_TRUE(rank.finished) << "seed " << seed;
      ASSERT_EQ(!rank.failure.ok(), hit) << "seed " << seed;
      if (!hit) continue;
      EXPECT_NE(rank.failure.message().find("injected"), std::string::npos) << rank.failure.to_string();
    }
    *failed += hit ? 1 : 0;
    expect_whole(device, outcome, seed);
  }
}

}  // namespace swale::sim
