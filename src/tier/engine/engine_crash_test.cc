#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>

#include "tier/engine/testing/crash_options.h"
#include "tier/engine/testing/crash_world.h"

namespace swale::tier::engine_crash_test {
namespace {

// "" or what went wrong, for one seed.
std::string run_seed(uint64_t seed, const Canaries& canaries, bool crashes,
                     std::map<std::string, uint64_t>* visited) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.canaries = canaries;
  CrashWorld world(options, seed * 7919);
  for (int life = 0; life < 4; ++life) {
    const uint64_t steps = rng.below(400);
    for (uint64_t i = 0; i < steps; ++i)
      if (std::string wrong = world.step(); !wrong.empty()) return wrong;
    if (!crashes || rng.chance(1, 4)) {
      if (std::string wrong = world.settle(); !wrong.empty()) return wrong;
    }
    if (crashes)
      if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
  }
  if (std::string wrong = world.settle(); !wrong.empty()) return wrong;
  if (visited)
    for (const auto& [point, count] : world.visited()) (*visited)[point] += count;
  return {};
}

TEST(Engine, EveryByteIsTheNewestThatWasWrittenAndDrainsToTheBackingDevice) {
  for (uint64_t seed = 1; seed <= 300u * scale(); ++seed)
    ASSERT_EQ(run_seed(seed, {}, false, nullptr), "") << "seed " << seed;
}

TEST(Engine, ACrashAnywhereLosesNothingAcknowledgedAndBringsNothingStaleBack) {
  std::map<std::string, uint64_t> visited;
  for (uint64_t seed = 1; seed <= 500u * scale(); ++seed)
    ASSERT_EQ(run_seed(seed, {}, true, &visited), "") << "seed " << seed;
  for (const auto& [point, count] : visited) std::printf("%8lu crashes %s\n", count, point.c_str());
  for (const char* action : {"append", "backing write", "sync of the log", "sync of the backing device",
                             "sync of a file", "erasure", "truncate", "unlink"})
    for (const char* how : {"with ", "without "})
      EXPECT_GT(visited[std::string(how) + action], 0u) << how << action;
}

// Devices that fail for a while, or for ever. Whoever waits gets an answer; what was acknowledged and not
// reported as lost is there.
TEST(Engine, ADeviceThatFailsLosesNothingSilently) {
  uint64_t refused = 0;
  uint64_t given_up = 0;
  uint64_t nothing_lost = 0;
  for (uint64_t seed = 1; seed <= 200u * scale(); ++seed) {
    Rng rng(seed);
    Options options = small_options(&rng);
    CrashWorld world(options, seed);
    const bool ssd = rng.chance(1, 2);
    for (int phase = 0; phase < 3; ++phase) {
      for (uint64_t i = 0; i < 150; ++i) ASSERT_EQ(world.step(), "") << "seed " << seed;
      if (phase != 1) continue;
      // The SSD refuses to be written; or the backing device fails, and is mended later.
      if (ssd)
        for (const auto kind : {Action::Kind::kAppend, Action::Kind::kSyncLog, Action::Kind::kErase})
          world.fail_next(kind);
      else
        world.fail_next(std::array{Action::Kind::kWriteBacking, Action::Kind::kSyncBacking,
                                   Action::Kind::kSyncFile, Action::Kind::kTruncate}[rng.below(4)]);
    }
    if (!ssd) world.heal();
    ASSERT_EQ(world.settle(ssd ? CrashWorld::Drain::kMayFail : CrashWorld::Drain::kMustWork), "")
        << "seed " << seed;
    refused += world.refused();
    given_up += world.engine().stats().log_failed;
    nothing_lost += world.engine().stats().lost_bytes == 0;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(given_up, 0u);
  EXPECT_GT(nothing_lost, 100u) << "these were compared byte by byte";
}

// The SSD is gone, with what only it had: that is counted, nobody waits for ever, and the backing device
// alone goes on.
TEST(Engine, ALostSsdIsGivenUpAndWhatItHadIsNamed) {
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= 100u * scale(); ++seed) {
    Rng rng(seed);
    Options options = small_options(&rng);
    CrashWorld world(options, seed);
    for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(world.step(), "") << "seed " << seed;
    for (const auto kind :
         {Action::Kind::kAppend, Action::Kind::kReadLog, Action::Kind::kSyncLog, Action::Kind::kErase})
      world.fail_next(kind);
    ASSERT_EQ(world.settle(CrashWorld::Drain::kNobodyLooks), "") << "seed " << seed;
    lost += world.engine().stats().lost_bytes;
    if (world.engine().stats().lost_bytes == 0) continue;
    EXPECT_TRUE(world.engine().stats().log_failed);
  }
  EXPECT_GT(lost, 0u);
}

// The page cache as the promise, and the power fails: what a sync of its file has covered is there.
std::string run_syncs(uint64_t seed, const Canaries& canaries, uint64_t* lives) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.durability = Durability::kPageCache;
  options.canaries = canaries;
  CrashWorld world(options, seed);
  world.cut_power();
  for (int life = 0; life < 4; ++life, ++*lives) {
    for (uint64_t i = rng.below(300); i > 0; --i)
      if (std::string wrong = world.step(); !wrong.empty()) return wrong;
    if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
  }
  return world.settle();
}

TEST(Engine, WhatASyncOfItsFileHasCoveredOutlivesAPowerCut) {
  uint64_t lives = 0;
  for (uint64_t seed = 1; seed <= 300u * scale(); ++seed)
    ASSERT_EQ(run_syncs(seed, {}, &lives), "") << "seed " << seed;
  std::printf("%lu power cuts\n", lives);
}

// The SSD refuses something, and perhaps the backing device a sync; soon after that the power fails, or the
// process is killed.
struct FailedLogs {
  uint64_t given_up = 0;
  uint64_t abandonments_failed = 0;
};
std::string run_failed_log(uint64_t seed, bool cut_power, std::optional<Action::Kind> also,
                           FailedLogs* seen) {
  Rng rng(seed);
  Options options = small_options(&rng);
  if (cut_power) options.durability = Durability::kPageCache;
  CrashWorld world(options, seed);
  if (cut_power) world.cut_power();
  const auto steps = [&](uint64_t below) -> std::string {
    for (uint64_t i = rng.below(below); i > 0; --i)
      if (std::string wrong = world.step(); !wrong.empty()) return wrong;
    return {};
  };
  if (std::string wrong = steps(200); !wrong.empty()) return wrong;
  if (rng.chance(1, 3)) {  // the process before has left a queue
    if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
    if (std::string wrong = steps(50); !wrong.empty()) return wrong;
  }
  const auto refused =
      std::array{Action::Kind::kAppend, Action::Kind::kSyncLog, Action::Kind::kErase}[rng.below(3)];
  if (also != Action::Kind::kTruncate || rng.chance(1, 2)) world.fail_next(refused);
  if (also) world.fail_next(*also);
  if (std::string wrong = steps(100); !wrong.empty()) return wrong;
  if (rng.chance(1, 2)) world.heal();  // too late for the log
  if (std::string wrong = steps(100); !wrong.empty()) return wrong;
  seen->given_up += world.engine().stats().log_failed;
  seen->abandonments_failed += world.visited().contains("failed abandonment");
  if (!also && rng.chance(1, 3)) return world.settle(CrashWorld::Drain::kMayFail);
  if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
  world.heal();
  return world.settle();
}

TEST(Engine, WhatASyncHasCoveredOutlivesALogThatFailsAndAPowerCut) {
  FailedLogs seen;
  for (uint64_t seed = 1; seed <= 1600u * scale(); ++seed)  // the list of losses needs many
    ASSERT_EQ(run_failed_log(seed, true, {}, &seen), "") << "seed " << seed;
  EXPECT_GT(seen.given_up, 300u);
}

// A sync that fails takes what it was to cover with it, and no later one says so: not the abandonment's next
// attempt either.
TEST(Engine, AnAbandonmentWhoseSyncsFailLosesNothing) {
  FailedLogs seen;
  for (const auto also : {Action::Kind::kAbandonLog, Action::Kind::kSyncFile, Action::Kind::kSyncBacking})
    for (const bool cut_power : {true, false})
      for (uint64_t seed = 1; seed <= 300u * scale(); ++seed)
        ASSERT_EQ(run_failed_log(seed, cut_power, also, &seen), "")
            << "seed " << seed << ", power cut " << cut_power << ", also fails " << static_cast<int>(also);
  EXPECT_GT(seen.abandonments_failed, 50u);
}

// An intent without an end may stand in the log: because the log has failed, or because the backing file
// could not be cut.
TEST(Engine, ATruncateThatFailsCutsNothingThatIsWrittenLater) {
  FailedLogs seen;
  for (const auto also : {std::optional<Action::Kind>(), std::optional(Action::Kind::kTruncate)})
    for (uint64_t seed = 1; seed <= 1000u * scale(); ++seed)
      ASSERT_EQ(run_failed_log(seed, false, also, &seen), "")
          << "seed " << seed << ", backing truncates fail " << also.has_value();
  EXPECT_GT(seen.given_up, 300u);
}

// A truncate has cut the file, and the sync of the cut has failed: its caller was told so. After a power cut
// all of the cut is there, or nothing of it.
struct CutsUndone {
  uint64_t undone = 0;
  uint64_t kept = 0;
};
std::string run_failed_cut(uint64_t seed, const std::function<void(CrashWorld*)>& meanwhile,
                           CutsUndone* seen) {
  Options options;
  options.policy = Policy::kSsdBlocking;
  options.durability = Durability::kGroupCommit;
  options.segment_count = 4;
  options.segment_bytes = 16384;
  CrashWorld world(options, seed);
  world.write(0, 0, 3000);
  if (std::string wrong = world.settle(); !wrong.empty()) return wrong;
  world.fail_next(Action::Kind::kSyncBacking);
  meanwhile(&world);
  if (!world.visited().contains("truncate failed, and the file is cut")) return "the cut was not refused";
  if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
  const bool undone = world.visited().contains("failed truncate undone by a power cut");
  ++(undone ? seen->undone : seen->kept);
  world.heal();
  return world.settle();
}

TEST(Engine, ATruncateThatIsRefusedBehindAFailedCutPromisesNothingOfThatCut) {
  CutsUndone seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto truncate_again = [&](CrashWorld* world) {
      world->truncate(0, 1000);
      EXPECT_EQ(world->settle(CrashWorld::Drain::kNobodyLooks), "") << "seed " << seed;
      world->truncate(0, 500);
      EXPECT_EQ(world->settle(CrashWorld::Drain::kNobodyLooks), "") << "seed " << seed;
      EXPECT_EQ(world->refused(), 2 + 2u) << "both truncates, and both drains";
    };
    ASSERT_EQ(run_failed_cut(seed, truncate_again, &seen), "") << "seed " << seed;
  }
  EXPECT_GT(seen.undone, 10u);
  EXPECT_GT(seen.kept, 10u);
}

// The write waits for a sync of the log, and is answered after the truncate that came after it.
TEST(Engine, AWriteThatIsAnsweredAfterAFailedCutStandsWhetherThatCutDoesOrNot) {
  CutsUndone seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto write_before = [&](CrashWorld* world) {
      world->write(0, 200, 300);
      world->truncate(0, 1000);
      EXPECT_EQ(world->settle(CrashWorld::Drain::kNobodyLooks), "") << "seed " << seed;
      EXPECT_EQ(world->acknowledged(), 3u) << "the first write and its drain, and the second write";
    };
    ASSERT_EQ(run_failed_cut(seed, write_before, &seen), "") << "seed " << seed;
  }
  EXPECT_GT(seen.undone, 10u);
  EXPECT_GT(seen.kept, 10u);
}

// A backing directory that takes writes and refuses truncates, for ever. Those that a process has begun leave
// the file as it was. Those that recovery repeats must be carried out: the log fills with intents that have
// no end.
TEST(Engine, WhoeverWaitsForARefusedTruncateIsTold) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 300u * scale(); ++seed) {
    Rng rng(seed);
    CrashWorld world(small_options(&rng), seed);
    for (uint64_t i = 0; i < 150; ++i) ASSERT_EQ(world.step(), "") << "seed " << seed;
    world.fail_next(Action::Kind::kTruncate);
    for (uint64_t i = 0; i < 300; ++i) ASSERT_EQ(world.step(), "") << "seed " << seed;
    ASSERT_EQ(world.settle(CrashWorld::Drain::kNobodyLooks), "") << "seed " << seed;
    world.heal();
    ASSERT_EQ(world.settle(), "") << "seed " << seed;
    const auto seen = world.visited();
    EXPECT_FALSE(seen.contains("truncate failed, and the file is cut")) << "seed " << seed;
    refused += seen.contains("truncate failed, and the file is as it was");
  }
  EXPECT_GT(refused, 50u);
}

TEST(Engine, CanaryASyncThatLeavesTheLogAlone) {
  uint64_t lives = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed)
    if (!run_syncs(seed, {.sync_without_log = true}, &lives).empty()) return;
  FAIL() << "nothing was noticed";
}

// Each of these is a mistake that was or could be made; the test above must notice it.
bool noticed(const Canaries& canaries) {
  for (uint64_t seed = 1; seed <= 3000; ++seed)
    if (!run_seed(seed, canaries, true, nullptr).empty()) return true;
  return false;
}

TEST(Engine, CanaryOverwritesOfTheLogThatGoToTheBackingDevice) {
  EXPECT_TRUE(noticed({.overwrite_directly = true}));
}
TEST(Engine, CanaryErasuresInAnyOrder) { EXPECT_TRUE(noticed({.skip_shields = true})); }
TEST(Engine, CanaryOverlappingWritesThatDoNotWait) { EXPECT_TRUE(noticed({.overlap_in_queue = true})); }
TEST(Engine, CanaryTruncatesWithoutAnEnd) { EXPECT_TRUE(noticed({.skip_truncate_end = true})); }
TEST(Engine, CanaryErasuresBeforeTheBackingDeviceIsSynced) { EXPECT_TRUE(noticed({.erase_unsynced = true})); }

}  // namespace
}  // namespace swale::tier::engine_crash_test
