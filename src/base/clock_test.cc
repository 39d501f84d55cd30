#include "base/clock.h"

#include <gtest/gtest.h>

namespace swale::clock_test {
namespace {

TEST(SystemClock, NeverGoesBack) {
  Nanos before = system_clock().now();
  for (int i = 0; i < 1000; ++i) {
    const Nanos now = system_clock().now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(Deadline, PassesAtItsTime) {
  ManualClock clock(100);
  const Deadline deadline = Deadline::in(clock, seconds(0.5));
  clock.advance(milliseconds(500) - 1);
  EXPECT_FALSE(deadline.passed(clock.now()));
  clock.advance(1);
  EXPECT_TRUE(deadline.passed(clock.now()));
}

TEST(Deadline, NoneNeverPasses) {
  EXPECT_FALSE(Deadline::none().passed(kForever));
  ManualClock clock(100);
  EXPECT_EQ(Deadline::in(clock, kForever).at, kForever);
}

}  // namespace
}  // namespace swale::clock_test
