#include "base/patience.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swale::patience_test {
namespace {

TEST(Patience, IsOverWhenItsTimeHasPassedForWhoeverAsksOften) {
  for (const Nanos total : {milliseconds(100), seconds(3), seconds(30), seconds(600)}) {
    ManualClock clock(12345);
    Patience patience(total, clock.now());
    const Nanos start = clock.now();
    while (!patience.over(clock.now())) clock.advance(patience.step());
    EXPECT_GE(clock.now() - start, total);
    EXPECT_LE(clock.now() - start, total + patience.step());
    EXPECT_TRUE(patience.over(clock.now()));
  }
}

TEST(Patience, DoesNotCountTheTimeInWhichItsProcessStoodStill) {
  int pauses = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    ManualClock clock;
    Patience patience(seconds(10), clock.now());
    Nanos ran = 0;
    while (!patience.over(clock.now())) {
      const bool paused = rng.below(8) == 0;
      pauses += paused ? 1 : 0;
      const Nanos by =
          paused ? seconds(28) : static_cast<Nanos>(rng.below(static_cast<uint64_t>(patience.step())));
      clock.advance(by);
      ran += std::min(by, 2 * patience.step());
    }
    EXPECT_GE(ran, seconds(10));
    EXPECT_LE(ran, seconds(10) + 2 * patience.step());
  }
  EXPECT_GT(pauses, 100);
}

// The canary of the test above: a Deadline does count it.
TEST(Patience, IsWhatADeadlineIsNot) {
  ManualClock clock;
  const Deadline deadline = Deadline::in(clock, seconds(10));
  Patience patience(seconds(10), clock.now());
  clock.advance(seconds(28));
  EXPECT_TRUE(deadline.passed(clock.now()));
  EXPECT_FALSE(patience.over(clock.now()));
}

TEST(Patience, OfNothingIsOverAtOnceAndForEverNever) {
  ManualClock clock;
  EXPECT_TRUE(Patience(0, clock.now()).over(clock.now()));
  EXPECT_TRUE(Patience(-5, clock.now()).over(clock.now()));
  Patience forever(kForever, clock.now());
  clock.advance(kForever / 2);
  EXPECT_FALSE(forever.over(clock.now()));
}

TEST(Patience, WaitsOnACondition) {
  Mutex mutex;
  CondVar changed;
  const MutexLock lock(mutex);
  EXPECT_FALSE(wait_patiently(changed, lock, milliseconds(60), [] { return false; }));
  int asked = 0;
  EXPECT_TRUE(wait_patiently(changed, lock, seconds(3600), [&] { return ++asked == 3; }));
}

}  // namespace
}  // namespace swale::patience_test
