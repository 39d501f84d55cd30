// Engine: writes that a newer one replaces in the queue, and writes that are taken out of it for the log,
// under kills and power cuts.
#include <gtest/gtest.h>

#include "tier/engine/testing/crash_options.h"
#include "tier/engine/testing/crash_world.h"

namespace swale::tier::engine_waiters_crash_test {
namespace {

struct Seen {
  uint64_t absorbed = 0;
  uint64_t diverted = 0;
};

// With the page cache as the promise. A power cut: what a sync has covered is there; a kill: all that was
// acknowledged is.
std::string run(uint64_t seed, Seen* seen) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.policy = Policy::kSwale;
  options.durability = Durability::kPageCache;
  options.queue_slots = 8 + static_cast<uint32_t>(rng.below(24));
  options.backing_depth = 1;
  CrashWorld world(options, seed);
  world.repeat_ranges();
  if (rng.chance(1, 2)) world.cut_power();
  for (int life = 0; life < 4; ++life) {
    const bool hangs = rng.chance(1, 2);  // the queue becomes long
    for (uint64_t i = rng.below(300); i > 0; --i) {
      if (hangs && i % 64 == 32) world.hang(Action::Kind::kWriteBacking);
      if (hangs && i % 64 == 0) world.resume();
      if (std::string wrong = world.step(); !wrong.empty()) return wrong;
    }
    world.resume();
    seen->absorbed += world.engine().stats().absorbed_bytes;
    seen->diverted += world.engine().stats().diverted_bytes;
    if (rng.chance(1, 4))
      if (std::string wrong = world.settle(); !wrong.empty()) return wrong;
    if (std::string wrong = world.crash(); !wrong.empty()) return wrong;
  }
  return world.settle();
}

TEST(EngineWaiters, WhatIsReplacedOrDivertedInTheQueueOutlivesCrashes) {
  Seen seen;
  for (uint64_t seed = 1; seed <= 600u * scale(); ++seed) ASSERT_EQ(run(seed, &seen), "") << "seed " << seed;
  std::printf("%lu bytes replaced, %lu diverted\n", seen.absorbed, seen.diverted);
  EXPECT_GT(seen.absorbed, 10'000u);
  EXPECT_GT(seen.diverted, 10'000u);
}

}  // namespace
}  // namespace swale::tier::engine_waiters_crash_test
