// Crashes of the whole machine at a chosen storage call: unsynced changes are dropped, torn or reordered, and
// the directory is compared with the model; then a later job of another size appends, and may crash as well.
// SWALE_SIM_SEEDS multiplies the number of seeds (make test-long).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/log.h"
#include "imd/format/generation.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "sim/checker.h"
#include "sim/cluster.h"
#include "sim/test_seeds.h"

namespace swale::sim::crash_test {
namespace {

constexpr char kDirectory[] = "/job/particles";
constexpr size_t kProbes = 5;
constexpr io::CrashMode kModes[] = {io::CrashMode::kDropAll, io::CrashMode::kTearPages,
                                    io::CrashMode::kReorder};

ClusterParams small_job(uint64_t seed) {
  Rng rng(seed * 131 + 7);
  ClusterParams params;
  params.seed = seed;
  params.job_id = 0x10b + seed;
  params.ranks = 1 + static_cast<int32_t>(rng.below(4));
  params.ways = 1 + static_cast<uint32_t>(rng.below(2));
  params.frame_bytes = 17 * kKiB;
  params.epochs = 1 + static_cast<uint32_t>(rng.below(3));
  params.overlap = rng.chance(1, 2);
  params.records_per_epoch = rng.below(400);
  params.workload.keys = 1 + rng.below(100);
  params.workload.variable_sizes = rng.chance(1, 2);
  params.workload.large_values = rng.chance(1, 2);
  params.extrema = rng.chance(1, 2);
  params.layout = layout_of_seed(seed);
  return params;
}

// The library warns of every tail that it cuts off, here thousands of times.
struct Crash : testing::Test {
  Crash() { set_log_level(LogLevel::kOff); }
  ~Crash() override { set_log_level(LogLevel::kWarn); }
};

// A machine: its disk survives its crashes.
class Machine {
 public:
  // Runs the job until it ends, or until the machine loses power at storage call `stop_at` (from 1; 0:
  // never). Adds to the model and to the promised epochs. Returns whether that call was reached.
  bool run(const ClusterParams& params, uint64_t stop_at, io::CrashMode mode) {
    Rng rng(params.seed ^ stop_at);
    return run(params, stop_at, [&] { disk_.crash(rng, mode); });
  }
  // The same, but the job alone ends there: what it has done stays, synced or not.
  bool kill(const ClusterParams& params, uint64_t stop_at) {
    return run(params, stop_at, [] {});
  }
  void lose_power(uint64_t seed, io::CrashMode mode) {
    Rng rng(seed);
    disk_.crash(rng, mode);
  }

  std::vector<std::string> problems() {
    if (promised_ == 0 && !*imd::has_manifest(disk_, kDirectory)) return {};
    return check_directory(disk_, kDirectory, model_, promised_, kProbes);
  }
  uint32_t epochs() const { return promised_; }
  uint64_t changes() const { return changes_; }  // writes and syncs met

 private:
  bool run(const ClusterParams& params, uint64_t stop_at, const std::function<void()>& stop) {
    io::FaultDevice device(disk_);
    uint64_t calls = 0;
    bool off = false;
    device.set_hook([&](const io::Call& call) {
      changes_ += call.kind == io::CallKind::kWrite || call.kind == io::CallKind::kSync ? 1 : 0;
      if (!off && ++calls == stop_at) {
        stop();
        off = true;
      }
      return off ? error(Code::kIoError, Scope::kFile, "the machine is off") : Status();
    });
    const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
    if (!outcome.ok()) {
      EXPECT_TRUE(off) << outcome.status().to_string();
      return off;
    }
    for (const RankOutcome& rank : outcome->ranks) EXPECT_TRUE(rank.finished) << "a rank waits for ever";
    // The model forgets attempted epochs that do not exist.
    model_.erase(model_.lower_bound(outcome->first_epoch), model_.end());
    model_.insert(outcome->model.begin(), outcome->model.end());
    promised_ = std::max(promised_, promised(*outcome));
    return off;
  }

  io::MemoryDevice disk_;
  Model model_;
  uint32_t promised_ = 0;
  uint64_t changes_ = 0;
};

// One small job, stopped at each of its storage calls, in every mode; after each crash a later job appends.
TEST_F(Crash, AtEveryCallOfASmallJob) {
  uint64_t points = 0, epochs = 0;
  for (const uint64_t seed : {1, 2, 6}) {
    for (const io::CrashMode mode : kModes) {
      for (uint64_t stop_at = 1;; ++stop_at) {
        Machine machine;
        ClusterParams params = small_job(seed);
        params.epochs = 2;
        const bool stopped = machine.run(params, stop_at, mode);
        for (const std::string& problem : machine.problems())
          ADD_FAILURE() << "seed " << seed << " call " << stop_at << ": " << problem;
        if (!stopped) break;
        ++points;
        epochs += machine.epochs();
        ClusterParams later = small_job(seed + 1000);
        later.extrema = params.extrema;
        machine.run(later, 0, mode);
        for (const std::string& problem : machine.problems())
          ADD_FAILURE() << "seed " << seed << " call " << stop_at << ", later job: " << problem;
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GT(points, 300u);
  std::printf("%llu points, %llu committed epochs read back whole\n", static_cast<unsigned long long>(points),
              static_cast<unsigned long long>(epochs));
}

// Many small jobs: each loses power at a random call, so does a second one, and a third writes to the end.
TEST_F(Crash, AtARandomCallOfEverySeed) {
  uint64_t crashes = 0, epochs = 0, changes = 0;
  for (uint64_t seed = 1; seed <= seeds(1000); ++seed) {
    Machine machine;
    Rng rng(seed);
    for (uint64_t job = 0; job < 3; ++job) {
      ClusterParams params = small_job(seed + job * 1'000'003);
      params.extrema = seed % 2 == 0;
      crashes += machine.run(params, job < 2 ? 1 + rng.below(80) : 0, kModes[rng.below(3)]) ? 1 : 0;
      for (const std::string& problem : machine.problems())
        ADD_FAILURE() << "seed " << seed << " job " << job << ": " << problem;
      ASSERT_FALSE(HasFailure());
    }
    epochs += machine.epochs();
    changes += machine.changes();
  }
  EXPECT_GT(crashes, seeds(1000) / 2);
  std::printf("%llu seeds, %llu crashes, %llu writes and syncs, %llu committed epochs read back whole\n",
              static_cast<unsigned long long>(seeds(1000)), static_cast<unsigned long long>(crashes),
              static_cast<unsigned long long>(changes), static_cast<unsigned long long>(epochs));
}

// A job that is killed leaves names that were never synced. A later job finds them, and acknowledges epochs
// below them.
TEST_F(Crash, NamesThatAKilledJobHasLeftAreDurableBeforeALaterOneAcknowledges) {
  uint64_t points = 0, epochs = 0;
  for (const io::CrashMode mode : kModes) {
    for (uint64_t stop_at = 1;; ++stop_at) {
      Machine machine;
      ClusterParams params = small_job(3);
      params.epochs = 1;
      params.extrema = false;
      if (!machine.kill(params, stop_at)) break;
      ++points;
      ClusterParams later = small_job(1000);
      later.extrema = false;
      machine.run(later, 0, mode);
      machine.lose_power(stop_at, mode);
      for (const std::string& problem : machine.problems())
        ADD_FAILURE() << "call " << stop_at << ": " << problem;
      ASSERT_FALSE(HasFailure());
      epochs += machine.epochs();
    }
  }
  std::printf("%llu points, %llu committed epochs read back whole\n", static_cast<unsigned long long>(points),
              static_cast<unsigned long long>(epochs));
}

// Canary: the checker detects, in every mode, a disk that returns OK for a sync of this kind of file and does
// nothing.
TEST(CrashCanary, ASyncThatIsLeftOutIsSeen) {
  for (const char* part : {".data", ".index", ".values", ".pages", ".source", "/epochs"}) {
    for (const io::CrashMode mode : kModes) {
      uint64_t seen = 0;
      for (uint64_t seed = 1; seed <= 30; ++seed) {
        io::MemoryDevice disk;
        io::FaultDevice device(disk);
        io::Fault lie;
        lie.action = io::FaultAction::kDrop;
        lie.kind = io::CallKind::kSync;
        lie.path_part = part;
        lie.from_then_on = true;
        device.inject(lie);
        ClusterParams params = small_job(seed);
        params.records_per_epoch = 300;
        params.workload.large_values = true;
        const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
        ASSERT_TRUE(outcome.ok());
        Rng rng(seed);
        disk.crash(rng, mode);
        seen +=
            check_directory(disk, kDirectory, outcome->model, promised(*outcome), kProbes).empty() ? 0 : 1;
      }
      EXPECT_GT(seen, 5u) << part;
    }
  }
}

}  // namespace
}  // namespace swale::sim::crash_test
