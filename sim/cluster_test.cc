// Whole jobs on one thread, over many seeds. SWALE_SIM_SEEDS multiplies their number (make test-long).
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "imd/format/log_names.h"
#include "io/fault_device.h"
#include "sim/test_cluster_checks.h"

namespace swale::sim::cluster_test {
namespace {

// A seed decides the shape of the job as well as its schedule.
ClusterParams params_of(uint64_t seed) {
  Rng rng(seed * 77 + 5);
  ClusterParams params;
  params.seed = seed;
  params.ranks = 1 + static_cast<int32_t>(rng.below(5));
  params.ways = 1 + static_cast<uint32_t>(rng.below(2));
  params.window = static_cast<uint16_t>(1 + rng.below(3));
  params.frame_bytes = 17 * kKiB;
  params.epochs = 1 + static_cast<uint32_t>(rng.below(3));
  params.overlap = rng.chance(1, 2);
  params.records_per_epoch = rng.below(4) == 0 ? rng.below(30) : 500 + rng.below(6000);
  params.workload.keys = 1 + rng.below(1000);
  params.workload.variable_sizes = rng.chance(1, 2);
  params.workload.hot_key = rng.chance(1, 4);
  params.extrema = rng.chance(1, 2);
  params.layout = layout_of_seed(seed);
  params.workload.large_values = rng.chance(1, 8);
  return params;
}

TEST(Cluster, EveryScheduleCommitsEverything) {
  uint64_t events = 0;
  for (uint64_t seed = 1; seed <= seeds(150); ++seed) {
    io::MemoryDevice device;
    const ClusterParams params = params_of(seed);
    const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    expect_all_committed(params, *outcome);
    if (HasFatalFailure()) return;
    expect_whole(device, *outcome, seed);
    events += outcome->events;
  }
  std::printf("%llu schedules, %llu events\n", static_cast<unsigned long long>(seeds(150)),
              static_cast<unsigned long long>(events));
}

TEST(Cluster, ASeedIsASchedule) {
  io::MemoryDevice first, second;
  const ClusterParams params = params_of(42);
  const ClusterOutcome a = *run_cluster(params, first, kDirectory);
  const ClusterOutcome b = *run_cluster(params, second, kDirectory);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.time, b.time);
  for (uint32_t part = 0; part < static_cast<uint32_t>(params.ranks); ++part) {
    const std::string path = imd::data_log_path(kDirectory, {1, PartitionNumber(part)});
    EXPECT_EQ(*io::read_file(first, path, kGiB), *io::read_file(second, path, kGiB));
  }
}

TEST(Cluster, MemtablesThatFillUpStopTheSendersAndNothingElse) {
  io::MemoryDevice device;
  ClusterParams params;
  params.seed = 9;
  params.ranks = 4;
  params.window = 1;
  params.epochs = 1;
  params.records_per_epoch = 120'000;  // several memtables of 600 KiB on every rank
  params.workload.keys = 50'000;
  const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
  for (const RankOutcome& rank : outcome.ranks) ASSERT_TRUE(rank.failure.ok() && rank.finished);
  expect_whole(device, outcome, params.seed);
}

// Lost, duplicated, altered and swapped frames: the epoch fails on every rank with a reason, or is committed
// correctly.
TEST(Cluster, DamagedTrafficIsNeverCommitted) {
  const auto damaged = [](uint64_t seed) {
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    params.faults.frames = {{static_cast<FrameFault>(1 + seed % 4), Rng(seed).below(12)}};
    return params;
  };
  MetFaults met;
  damage_traffic(seeds(150), damaged, Ranks::kAgree, &met);
  EXPECT_GT(met.hits, 50u);
  // Every lost, duplicated, altered or swapped frame is noticed, except a swap of a link's last frame.
  EXPECT_GE(met.failed * 10, met.hits * 7);
  std::printf("%llu runs met their fault, %llu of them failed an epoch\n",
              static_cast<unsigned long long>(met.hits), static_cast<unsigned long long>(met.failed));
}

TEST(Cluster, AFailedStorageRequestFailsTheEpochOnEveryRank) {
  uint64_t failed = 0;
  fail_storage(seeds(60), params_of, &failed);
  EXPECT_GT(failed, 20u);
}

TEST(Cluster, AKilledRankIsReportedByTheOthersAndNobodyHangs) {
  uint64_t reported = 0;
  for (uint64_t seed = 1; seed <= seeds(100); ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    Rng rng(seed);
    params.faults.killed = static_cast<net::Rank>(rng.below(static_cast<uint64_t>(params.ranks)));
    params.faults.kill_time = static_cast<Nanos>(rng.below(6'000'000));
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    for (net::Rank rank = 0; rank < params.ranks; ++rank) {
      const RankOutcome& result = outcome.ranks[static_cast<size_t>(rank)];
      if (rank == params.faults.killed) continue;
      ASSERT_TRUE(result.finished) << "seed " << seed;
      if (!result.failure.ok()) {
        ++reported;
        EXPECT_NE(result.failure.message().find(fmt::format("rank {}", params.faults.killed)),
                  std::string::npos)
            << result.failure.to_string();
      }
    }
    expect_whole(device, outcome, seed);
  }
  EXPECT_GT(reported, 50u);
}

// The next job takes over the lock of the dead one and continues its committed epochs.
TEST(Cluster, ARankThatDiesWhileTheDirectoryIsOpenedIsNamedAndTheNextJobGoesOn) {
  uint64_t failed = 0;
  for (uint64_t seed = 1; seed <= seeds(60); ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    Rng rng(seed);
    params.faults.killed = static_cast<net::Rank>(rng.below(static_cast<uint64_t>(params.ranks)));
    params.faults.kill_time = static_cast<Nanos>(rng.below(600'000));
    params.faults.kill_in_opening = true;
    const Result<ClusterOutcome> first = run_cluster(params, device, kDirectory);
    if (!first.ok()) {
      ++failed;
      EXPECT_NE(first.status().message().find(fmt::format("rank {}", params.faults.killed)),
                std::string_view::npos)
          << "seed " << seed << ": " << first.status().to_string();
    }
    params.faults = {};
    ++params.job_id;
    const Result<ClusterOutcome> later = run_cluster(params, device, kDirectory);
    ASSERT_TRUE(later.ok()) << "seed " << seed << ": " << later.status().to_string();
    for (const RankOutcome& rank : later->ranks) ASSERT_TRUE(rank.finished && rank.failure.ok());
    if (later->first_epoch == 0) expect_whole(device, *later, seed);
  }
  EXPECT_GT(failed, 20u);
  std::printf("%llu openings failed\n", static_cast<unsigned long long>(failed));
}

TEST(Cluster, ALaterJobDropsEpochsAndGoesOnAfterThem) {
  io::MemoryDevice device;
  ClusterParams params = params_of(4);
  params.epochs = 3;  // steps 0, 10, 20
  const ClusterOutcome first = *run_cluster(params, device, kDirectory);
  ASSERT_EQ(promised(first), 3u);
  params.resume_after = 10;
  ++params.job_id;
  params.epochs = 1;
  ClusterOutcome later = *run_cluster(params, device, kDirectory);
  EXPECT_EQ(later.first_epoch, 2u);
  later.model.insert(first.model.begin(), first.model.find(2));
  for (const std::string& problem : check_directory(device, kDirectory, later.model, 3, kProbes))
    ADD_FAILURE() << problem;
}

// Lost, duplicated, altered and swapped control frames, several per run: no wrong epoch is committed, and no
// rank waits for ever. A rank that had all it needed before the damage may close successfully.
TEST(Cluster, DamagedControlMessagesAreNoticed) {
  const auto damaged = [](uint64_t seed) {
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    Rng rng(seed);
    for (uint64_t fault = 0; fault <= rng.below(3); ++fault) {
      const FrameFault how[] = {FrameFault::kLose, FrameFault::kDouble, FrameFault::kSwapWithNext,
                                FrameFault::kAlter};
      params.faults.frames.push_back({how[rng.below(4)], rng.below(40), FrameClass::kControl});
    }
    return params;
  };
  MetFaults met;
  damage_traffic(seeds(150), damaged, Ranks::kMayDiffer, &met);
  EXPECT_GT(met.hits, 100u);
  EXPECT_GE(met.failed * 10, met.hits * 7);
  std::printf("%llu runs met their faults, %llu of them failed an epoch\n",
              static_cast<unsigned long long>(met.hits), static_cast<unsigned long long>(met.failed));
}

bool says_damaged(const Status& status) {
  const std::string_view text = status.message();
  return text.find("from rank ") != std::string_view::npos && text.find("damaged") != std::string_view::npos;
}

// One bit of a control frame, or of one of the job's own, is wrong on arrival: the receiver names the sender,
// all ranks fail for that reason, and no wrong epoch is committed. A rank that had all it needed may close
// successfully.
TEST(Cluster, AFlippedBitInAControlFrameIsNamed) {
  uint64_t hits = 0, named = 0;
  for (uint64_t seed = 1; seed <= seeds(150); ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    Rng rng(seed);
    const FrameClass of = seed % 4 == 0 ? FrameClass::kOwn : FrameClass::kControl;
    params.faults.frames = {{FrameFault::kAlter, rng.below(40), of}};
    const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
    if (!outcome.ok()) {  // the opening's own frames
      ASSERT_TRUE(says_damaged(outcome.status())) << "seed " << seed << ": " << outcome.status().to_string();
      ++hits, ++named;
      continue;
    }
    const uint64_t frames = of == FrameClass::kOwn ? outcome->own_frames : outcome->control_frames;
    const bool hit = frames > params.faults.frames[0].number;
    bool damage_told = false;
    for (const RankOutcome& rank : outcome->ranks) {
      ASSERT_TRUE(rank.finished) << "seed " << seed << ": a rank waits for ever";
      if (rank.failure.ok()) continue;
      ASSERT_TRUE(hit && says_damaged(rank.failure)) << "seed " << seed << ": " << rank.failure.to_string();
      damage_told = true;
    }
    hits += hit ? 1 : 0;
    named += damage_told ? 1 : 0;
    expect_whole(device, *outcome, seed);
  }
  EXPECT_GT(hits, 100u);
  EXPECT_GE(named * 10, hits * 8);  // the rest came to ranks that were done
  std::printf("%llu runs met a flipped bit, %llu of them named its sender\n",
              static_cast<unsigned long long>(hits), static_cast<unsigned long long>(named));
}

TEST(Cluster, APowerCutKeepsEveryCommittedEpochWhole) {
  uint64_t cuts = 0, epochs_kept = 0;
  for (uint64_t seed = 1; seed <= seeds(250); ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    Rng rng(seed * 31);
    params.faults.events_max = 1 + rng.below(3000);
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    device.crash(rng, rng.chance(1, 2) ? io::CrashMode::kDropAll : io::CrashMode::kTearPages);
    expect_whole(device, outcome, seed);
    ++cuts;
    epochs_kept += promised(outcome);
  }
  EXPECT_GT(epochs_kept, 50u);
  std::printf("%llu power cuts, %llu committed epochs read back whole\n",
              static_cast<unsigned long long>(cuts), static_cast<unsigned long long>(epochs_kept));
}

// Canaries: the checker must notice what these do.
TEST(ClusterCanary, ARecordThatTheModelHasNotIsSeen) {
  io::MemoryDevice device;
  ClusterOutcome outcome = *run_cluster(params_of(3), device, kDirectory);
  auto& epoch = outcome.model.begin()->second;
  epoch.begin()->second.begin()->second.pop_back();
  EXPECT_FALSE(check_directory(device, kDirectory, outcome.model, promised(outcome), kProbes).empty());
}

TEST(ClusterCanary, ABestRecordThatIsNotFoundIsSeen) {
  ClusterParams params = params_of(3);
  params.extrema = true;
  io::MemoryDevice device;
  ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
  ASSERT_TRUE(check_directory(device, kDirectory, outcome.model, promised(outcome), kProbes).empty());
  // The model has a greater number than any that was written; every other check passes.
  std::string value(40, '\xff');
  put_u32(value.data() + 4, 0);
  outcome.model.begin()->second.begin()->second[0].push_back(value);
  bool seen = false;
  for (const std::string& problem :
       check_directory(device, kDirectory, outcome.model, promised(outcome), kProbes)) {
    seen = seen || problem.find("largest") != std::string::npos;
  }
  EXPECT_TRUE(seen);
}

// Only silence shows that a rank is dead: without heartbeats, the others give up a living rank while they
// wait.
TEST(ClusterCanary, WithoutHeartbeatsALivingRankIsGivenUp) {
  io::MemoryDevice device;
  ClusterParams params = params_of(3);
  params.ranks = 2;
  params.records_per_epoch = 0;  // a frame that follows a lost one would show the loss
  params.faults.frames = {{FrameFault::kLose, 0, FrameClass::kControl, true},
                          {FrameFault::kLose, 200, FrameClass::kOwn, true}};
  const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
  for (const RankOutcome& rank : outcome.ranks) {
    EXPECT_TRUE(rank.finished);
    EXPECT_NE(rank.failure.message().find("rank "), std::string_view::npos) << rank.failure.to_string();
    EXPECT_EQ(rank.failure.code(), Code::kUnavailable) << rank.failure.to_string();
  }
}

// The checksum is what detects flipped bits: if it is corrected after the flip, jobs succeed in spite of it.
TEST(ClusterCanary, AFlippedBitWithAGoodChecksumPasses) {
  uint64_t passed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.ranks = std::max(params.ranks, 2);
    params.faults.events_max = 100'000;  // a forged credit may hang it
    params.faults.frames = {{FrameFault::kForge, Rng(seed).below(20), FrameClass::kControl}};
    const ClusterOutcome outcome = *run_cluster(params, device, kDirectory);
    bool all_ok = outcome.control_frames > params.faults.frames[0].number;
    for (const RankOutcome& rank : outcome.ranks) {
      EXPECT_FALSE(says_damaged(rank.failure)) << rank.failure.to_string();
      all_ok = all_ok && rank.finished && rank.failure.ok();
    }
    passed += all_ok ? 1 : 0;
  }
  EXPECT_GT(passed, 0u);
}

TEST(ClusterCanary, ADiskThatLiesAboutSyncLosesACommittedEpoch) {
  uint64_t seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    io::MemoryDevice memory;
    io::FaultDevice device(memory);
    io::Fault lie;
    lie.action = io::FaultAction::kDrop;
    lie.kind = io::CallKind::kSync;
    lie.path_part = ".data";
    lie.from_then_on = true;
    device.inject(lie);
    const ClusterOutcome outcome = *run_cluster(params_of(seed), device, kDirectory);
    Rng rng(seed);
    memory.crash(rng, io::CrashMode::kDropAll);
    seen += check_directory(memory, kDirectory, outcome.model, promised(outcome), kProbes).empty() ? 0 : 1;
  }
  EXPECT_GT(seen, 10u);
}

}  // namespace
}  // namespace swale::sim::cluster_test
