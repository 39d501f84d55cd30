#include "net/fabric/polling.h"

#include <gtest/gtest.h>

namespace swale::net::polling_test {
namespace {

constexpr Nanos kBudget = 100;

// An expectation that is met `after` its beginning; nobody looks more often than every nanosecond. Returns
// how long was polled.
Nanos expect(Polling* polling, Nanos* now, Nanos after) {
  polling->begin(*now);
  const Nanos begin = *now;
  Nanos polled = 0;
  for (; *now < begin + after; ++*now) {
    if (polling->go_on(*now)) ++polled;
  }
  polling->met();
  return polled;
}

TEST(Polling, GoesOnWhileItPays) {
  Polling polling(kBudget);
  Nanos now = 5;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(expect(&polling, &now, 99), 99);
}

// A message of many frames takes longer than the budget.
TEST(Polling, GoesOnWhileFramesCome) {
  Polling polling(kBudget);
  polling.begin(0);
  for (Nanos now = 0; now < 10 * kBudget; ++now) {
    ASSERT_TRUE(polling.go_on(now)) << now;
    if (now % (kBudget - 1) == 0) polling.came(now);
  }
  EXPECT_FALSE(polling.go_on(11 * kBudget));
  polling.came(11 * kBudget);
  EXPECT_FALSE(polling.go_on(11 * kBudget + 1)) << "it had stopped";
}

TEST(Polling, StopsWhereItDoesNotPayAndTriesAgainSeldom) {
  Polling polling(kBudget);
  Nanos now = 0;
  Nanos polled = 0;
  for (int i = 0; i < 65'000; ++i) polled += expect(&polling, &now, 1'000);
  EXPECT_GT(polled, 0);
  // One part in 65 of the time, and those of the beginning.
  EXPECT_LE(polled, now / (Polling::kPauseMax + 1) + 8 * kBudget);
}

TEST(Polling, BeginsAgainWhenItPaysAgain) {
  Polling polling(kBudget);
  Nanos now = 0;
  for (int i = 0; i < 1'000; ++i) expect(&polling, &now, 1'000);
  Nanos polled = 0;
  for (const Nanos begin = now; now < begin + (Polling::kPauseMax + 1) * kBudget;)
    polled += expect(&polling, &now, 10);
  EXPECT_GT(polled, 0);
  EXPECT_EQ(expect(&polling, &now, 10), 10);
  EXPECT_EQ(expect(&polling, &now, 10), 10);
}

TEST(Polling, NeverPollsWithoutABudgetOrAnExpectation) {
  Polling never;
  never.begin(0);
  EXPECT_FALSE(never.go_on(0));
  Polling polling(kBudget);
  EXPECT_FALSE(polling.go_on(0));
  polling.begin(0);
  EXPECT_TRUE(polling.go_on(1));
  polling.give_up();
  EXPECT_FALSE(polling.go_on(2));
}

TEST(Polling, WhatIsGivenUpIsNoVerdict) {
  Polling polling(kBudget);
  for (int i = 0; i < 10; ++i) {
    polling.begin(1'000 * i);
    polling.give_up();
  }
  polling.begin(0);
  EXPECT_TRUE(polling.go_on(1));
}

// The canary of the tests above: without the memory of what did not pay, the second one fails.
TEST(Polling, TheLimitAboveWouldNoticePollingEachTime) {
  Nanos now = 0;
  Nanos polled = 0;
  for (int i = 0; i < 650; ++i) {
    Polling forgetful(kBudget);
    polled += expect(&forgetful, &now, 1'000);
  }
  EXPECT_GT(polled, now / (Polling::kPauseMax + 1) + 8 * kBudget);
}

}  // namespace
}  // namespace swale::net::polling_test
