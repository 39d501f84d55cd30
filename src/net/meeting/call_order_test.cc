#include "net/meeting/call_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace swale::net::call_order_test {
namespace {

using testing::HasSubstr;

constexpr auto kOpen = CallKind::kOpenDirectory;
constexpr auto kMake = CallKind::kMakeDirectory;
constexpr auto kEnd = CallKind::kEndEpoch;
constexpr auto kClose = CallKind::kCloseDirectory;
constexpr auto kCloseJob = CallKind::kCloseJob;

// A rank that has opened the directory of channel 1 by call 1 of the job.
struct Opened {
  Opened() : calls(0) {
    EXPECT_TRUE(calls.begin(kOpen, "run/x").ok());
    calls.add_channel(1);
  }
  Status begin(CallKind kind, uint32_t epoch = 0) { return calls.begin(1, kind, epoch, "run/x", &stamp); }

  CallOrder calls;
  CallStamp stamp;
};

TEST(CallOrder, TheSameCallsInTheSameOrderAreFineWhoeverIsFirst) {
  Opened rank;
  EXPECT_TRUE(rank.calls.heard(2, 1, kOpen).ok());
  EXPECT_TRUE(rank.calls.heard(1, 1, kEnd, 0, {1, 1}).ok());  // ahead of us
  EXPECT_TRUE(rank.begin(kEnd, 0).ok());
  EXPECT_EQ(rank.stamp, (CallStamp{1, 1}));
  EXPECT_TRUE(rank.begin(kClose).ok());
  EXPECT_TRUE(rank.calls.heard(2, 1, kEnd, 0, {1, 1}).ok());  // behind us
  EXPECT_TRUE(rank.calls.heard(2, 1, kClose, 0, {2, 1}).ok());
  EXPECT_TRUE(rank.calls.heard(1, 2, kCloseJob).ok());
  EXPECT_TRUE(rank.calls.begin(kCloseJob, "").ok());
}

TEST(CallOrder, NamesBothCallsWhicheverComesFirst) {
  for (const bool heard_first : {false, true}) {
    Opened rank;
    EXPECT_TRUE(rank.begin(kEnd, 0).ok());
    Status status;
    if (heard_first) {
      EXPECT_TRUE(rank.calls.heard(1, 1, kClose, 0, {2, 1}).ok());
      status = rank.begin(kEnd, 1);
    } else {
      EXPECT_TRUE(rank.begin(kEnd, 1).ok());
      status = rank.calls.heard(1, 1, kClose, 1, {2, 1});
    }
    EXPECT_TRUE(is_mismatch(status));
    EXPECT_EQ(
        status.message(),
        "rank 1 closes run/x while rank 0 ends epoch 1 of run/x: all ranks must make the same collective "
        "calls in the same order");
  }
}

TEST(CallOrder, ACallOnADirectoryThatThisRankHasPassedOver) {
  for (const bool heard_first : {false, true}) {
    for (const CallKind own : {kOpen, kMake, kCloseJob}) {
      Opened rank;
      Status status;
      if (heard_first) {
        EXPECT_TRUE(rank.calls.heard(1, 1, kEnd, 0, {1, 1}).ok());
        status = rank.calls.begin(own, "run/y");
      } else {
        EXPECT_TRUE(rank.calls.begin(own, "run/y").ok());
        status = rank.calls.heard(1, 1, kEnd, 0, {1, 1});
      }
      EXPECT_TRUE(is_mismatch(status));
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 ends epoch 0 of "));
    }
  }
}

TEST(CallOrder, OfADirectoryThatHasFailedNothingIsCompared) {
  Opened rank;
  EXPECT_TRUE(rank.calls.heard(1, 1, kEnd, 0, {1, 1}).ok());
  rank.calls.forget(1);
  EXPECT_TRUE(rank.begin(kClose).ok());
  EXPECT_TRUE(rank.calls.begin(kOpen, "run/y").ok());
  EXPECT_TRUE(rank.calls.heard(1, 1, kEnd, 1, {2, 1}).ok());
}

TEST(CallOrder, CallsOfTheJobByNumber) {
  CallOrder calls(3);
  EXPECT_TRUE(calls.begin(kOpen, "run/y").ok());
  EXPECT_EQ(
      calls.heard(0, 1, kMake).message(),
      "rank 0 makes a directory while rank 3 opens run/y: all ranks must make the same collective calls in "
      "the same order");
  EXPECT_TRUE(calls.heard(0, 2, kCloseJob).ok());
  EXPECT_TRUE(is_mismatch(calls.begin(kMake, "run/z")));
  for (uint32_t i = 0; i < CallOrder::kKept; ++i) EXPECT_TRUE(calls.begin(kOpen, "a").ok());
  EXPECT_TRUE(calls.heard(0, 2, kOpen).ok());  // long ago: not compared
}

}  // namespace
}  // namespace swale::net::call_order_test
