#include "net/fabric/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace swale::net::liveness_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LivenessTest : public testing::Test {
 protected:
  static Liveness::Params params() {
    Liveness::Params out;
    out.rank = 0;
    out.size = 3;
    out.host_of = [](Rank rank) {
      return std::vector<std::string>{"alpha", "beta", "gamma"}[static_cast<size_t>(rank)];
    };
    out.heartbeat_interval = seconds(1);
    out.silence_deadline = seconds(10);
    return out;
  }
  // Polls as a progress thread would, each time it is asked to; returns all that was due.
  Liveness::Due run(Nanos duration, Rank speaking = -1) {
    Liveness::Due all;
    const Nanos end = clock_.now() + duration;
    while (clock_.now() < end) {
      if (speaking >= 0) liveness_.note_heard(speaking);
      const Liveness::Due due = liveness_.poll(clock_.now());
      all.heartbeats.insert(all.heartbeats.end(), due.heartbeats.begin(), due.heartbeats.end());
      all.silent.insert(all.silent.end(), due.silent.begin(), due.silent.end());
      EXPECT_GT(due.next, clock_.now());
      clock_.advance(std::min(due.next, end) - clock_.now());
    }
    return all;
  }
  ManualClock clock_{seconds(5)};
  Liveness liveness_{params()};
};

TEST_F(LivenessTest, WatchesOnlyPeersThatWereMet) {
  const Liveness::Due due = run(seconds(60));
  EXPECT_THAT(due.heartbeats, IsEmpty());
  EXPECT_THAT(due.silent, IsEmpty());
  EXPECT_FALSE(liveness_.met(1));
  liveness_.note_sent(1);
  EXPECT_TRUE(liveness_.met(1));
  EXPECT_FALSE(liveness_.has_answered(1));
}

TEST_F(LivenessTest, APeerHasAnsweredForEver) {
  liveness_.note_heard(1);
  run(seconds(5));
  EXPECT_TRUE(liveness_.has_answered(1));
  EXPECT_FALSE(liveness_.has_answered(2));
}

TEST(Liveness, FindsTheFewMetPeersOfALargeJob) {
  Liveness::Params params;
  params.size = 131'072;
  params.host_of = [](Rank) { return std::string("anywhere"); };
  Liveness liveness(params);
  const std::vector<Rank> met = {1, 255, 256, 70'000, 131'071};
  for (const Rank peer : met) liveness.note_sent(peer);
  EXPECT_EQ(liveness.met_peers(), met);
  EXPECT_FALSE(liveness.met(257));
  EXPECT_FALSE(liveness.met(5'000));
  ManualClock clock;
  std::vector<Rank> heartbeats;
  for (int i = 0; i < 6 && heartbeats.empty(); ++i) {
    heartbeats = liveness.poll(clock.now()).heartbeats;
    clock.advance(params.heartbeat_interval / 4);
  }
  EXPECT_EQ(heartbeats, met);
}

TEST_F(LivenessTest, ReportsASilentPeerOnceByNameAndTime) {
  liveness_.note_sent(1);
  EXPECT_THAT(run(seconds(9)).silent, IsEmpty());
  const Liveness::Due due = run(seconds(30));
  ASSERT_EQ(due.silent.size(), 1u);
  EXPECT_EQ(due.silent[0].peer, 1);
  EXPECT_EQ(due.silent[0].why.code(), Code::kUnavailable);
  EXPECT_EQ(due.silent[0].why.scope(), Scope::kPeer);
  EXPECT_THAT(
      std::string(due.silent[0].why.message()),
      testing::HasSubstr("rank 1 (host beta) has been silent for 10.0 s (net.silence_deadline_s = 10)"));
}

TEST_F(LivenessTest, HeartbeatsFlowOnlyWhereNothingElseDoes) {
  liveness_.note_sent(1);
  liveness_.note_heard(2);
  const Liveness::Due quiet = run(seconds(8), 2);
  EXPECT_NEAR(static_cast<double>(std::count(quiet.heartbeats.begin(), quiet.heartbeats.end(), 1)), 7, 1);
  EXPECT_EQ(quiet.heartbeats.front(), 2) << "one that has only spoken to us gets a first one at once";
  for (int i = 0; i < 40; ++i) {
    liveness_.note_sent(2);
    EXPECT_EQ(testing::Value(run(milliseconds(200), 2).heartbeats, testing::Contains(2)), false);
    liveness_.note_heard(1);
  }
}

TEST_F(LivenessTest, APeerThatSpeaksLivesHoweverLittleItSays) {
  liveness_.note_sent(1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(run(seconds(9)).silent, IsEmpty());
    liveness_.note_heard(1);
  }
}

TEST_F(LivenessTest, OurOwnStopBlamesNobody) {
  liveness_.note_sent(1);
  run(seconds(5));
  clock_.advance(seconds(3600));  // SIGSTOP, or the machine slept
  EXPECT_THAT(run(seconds(4)).silent, IsEmpty()) << "a live peer has time to be heard";
  EXPECT_THAT(run(seconds(10)).silent, testing::SizeIs(1)) << "a dead one is still found";
}

TEST_F(LivenessTest, APeerThatSaidGoodbyeMayBeSilentButIsKeptInformed) {
  liveness_.note_heard(1);
  liveness_.on_goodbye(1);
  const Liveness::Due due = run(seconds(60));
  EXPECT_THAT(due.silent, IsEmpty());
  EXPECT_THAT(due.heartbeats, testing::SizeIs(testing::Ge(40u)));
  liveness_.on_down(1);
  EXPECT_THAT(run(seconds(60)).heartbeats, IsEmpty());
  EXPECT_TRUE(liveness_.met(1));
}

}  // namespace
}  // namespace swale::net::liveness_test
