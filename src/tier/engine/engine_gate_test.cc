// Engine on a backing device that is slow, hangs or fills up, under an operator who pauses flushes for ever,
// and with a clock that jumps: nobody waits for ever, and no byte is lost.
#include <gtest/gtest.h>

#include "tier/engine/testing/crash_options.h"
#include "tier/engine/testing/crash_world.h"

namespace swale::tier::engine_gate_test {
namespace {

constexpr Nanos kYear = 365 * 86'400'000'000'000;

struct Outcome {
  std::string wrong;
  uint64_t acknowledged_before = 0;  // the device hangs, or the clock jumps
  uint64_t acknowledged_during = 0;
  uint64_t log_waits = 0;
};

std::string steps(CrashWorld* world, int count) {
  for (int i = 0; i < count; ++i)
    if (std::string wrong = world->step(); !wrong.empty()) return wrong;
  return {};
}

// The backing device takes nothing for a while; flushes are paused from then on.
Outcome run_hanging(uint64_t seed, const Canaries& canaries) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.canaries = canaries;
  CrashWorld world(options, seed);
  Outcome run;
  run.wrong = steps(&world, 100);
  run.acknowledged_before = world.acknowledged();
  for (const auto kind : {Action::Kind::kWriteBacking, Action::Kind::kSyncBacking, Action::Kind::kSyncFile,
                          Action::Kind::kTruncate, Action::Kind::kUnlink})
    world.hang(kind);
  if (run.wrong.empty()) run.wrong = steps(&world, 300);
  run.acknowledged_during = world.acknowledged() - run.acknowledged_before;
  world.resume();
  world.pause_flush();
  if (run.wrong.empty()) run.wrong = world.settle();
  run.log_waits = world.engine().stats().log_waits;
  return run;
}

TEST(EngineGate, ABackingDeviceThatHangsAndAPauseForEverStopNobody) {
  uint64_t during = 0;
  uint64_t log_waits = 0;
  for (uint64_t seed = 1; seed <= 200u * scale(); ++seed) {
    const Outcome run = run_hanging(seed, {});
    ASSERT_EQ(run.wrong, "") << "seed " << seed;
    during += run.acknowledged_during;
    log_waits += run.log_waits;
  }
  std::printf("hanging: %lu requests answered meanwhile, %lu writes waited for space\n", during, log_waits);
  EXPECT_GT(during, 0u) << "what the log has space for needs no backing device";
  EXPECT_GT(log_waits, 0u) << "the log was never full";
}

TEST(EngineGate, CanaryAGateThatYieldsToNobodyIsADeadlock) {
  for (uint64_t seed = 1; seed <= 200; ++seed)
    if (!run_hanging(seed, {.latch_gate = true}).wrong.empty()) return;
  FAIL() << "nothing was noticed";
}

// A slow device: its actions are carried out long after all others, one at a time.
TEST(EngineGate, ASlowBackingDeviceLosesNothing) {
  for (uint64_t seed = 1; seed <= 100u * scale(); ++seed) {
    Rng rng(seed);
    CrashWorld world(small_options(&rng), seed);
    for (int round = 0; round < 10; ++round) {
      world.hang(Action::Kind::kWriteBacking);
      ASSERT_EQ(steps(&world, 40), "") << "seed " << seed;
      world.resume();
      ASSERT_EQ(steps(&world, 2), "") << "seed " << seed;
      if (round == 5) {
        ASSERT_EQ(world.crash(), "") << "seed " << seed;
      }
    }
    ASSERT_EQ(world.settle(), "") << "seed " << seed;
  }
}

// The backing device is full for a while: writes to it fail. Requests are refused or wait for the log, and
// all is well afterwards.
TEST(EngineGate, ABackingDeviceThatIsFullForAWhileTakesEverythingAgain) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 100u * scale(); ++seed) {
    Rng rng(seed);
    CrashWorld world(small_options(&rng), seed);
    ASSERT_EQ(steps(&world, 100), "") << "seed " << seed;
    world.fail_next(Action::Kind::kWriteBacking);
    world.pause_flush();
    ASSERT_EQ(steps(&world, 200), "") << "seed " << seed;
    world.heal();
    ASSERT_EQ(world.settle(), "") << "seed " << seed;
    refused += world.refused();
  }
  std::printf("full: %lu requests refused\n", refused);
  EXPECT_GT(refused, 0u);
}

// An hour back, a year ahead, and back again, with everything under way.
std::string run_jumps(uint64_t seed, const Canaries& canaries) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.canaries = canaries;
  CrashWorld world(options, seed);
  for (const Nanos by : {-kYear / 8'760, kYear, -kYear, 1 - kYear, 3 * kYear, -2 * kYear}) {
    if (std::string wrong = steps(&world, 60); !wrong.empty()) return wrong;
    world.jump_clock(by);
    if (rng.chance(1, 4))
      if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
    if (rng.chance(1, 3))
      if (std::string wrong = world.settle(); !wrong.empty()) return wrong;
  }
  return world.settle();
}

TEST(EngineGate, AClockThatJumpsStopsNothingThatWaitsForATime) {
  for (uint64_t seed = 1; seed <= 200u * scale(); ++seed)
    ASSERT_EQ(run_jumps(seed, {}), "") << "seed " << seed;
}

TEST(EngineGate, CanaryAClockThatStandsStillAfterAJumpStopsWhatWaits) {
  for (uint64_t seed = 1; seed <= 200; ++seed)
    if (!run_jumps(seed, {.latch_clock = true}).empty()) return;
  FAIL() << "nothing was noticed";
}

}  // namespace
}  // namespace swale::tier::engine_gate_test
