#include "imd/write/epoch_protocol.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace swale::imd::epoch_protocol_test {
namespace {

// All ranks' protocols, messages delivered in a fixed order or dropped by the test.
class Ring {
 public:
  explicit Ring(int32_t size, EpochProtocol::Ends ends = EpochProtocol::Ends::kOfEachRank)
      : ends_(ends), sent(static_cast<size_t>(size)) {
    for (net::Rank rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<EpochProtocol>(rank, size, ends));
      ranks_.back()->open_epoch(EpochNumber(0));
    }
  }
  EpochProtocol& operator[](net::Rank rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }

  // Delivers until nothing moves. Flushes and commits are answered at once.
  void run(const Status& commit_status = Status()) {
    for (bool moved = true; moved;) {
      moved = false;
      for (net::Rank rank = 0; rank < size(); ++rank) {
        EpochProtocol& protocol = (*this)[rank];
        if (protocol.take_flush()) {
          moved = true;
          protocol.on_durable(tally(10));
        }
        if (auto commit = protocol.take_commit()) {
          moved = true;
          commits.push_back(*commit);
          protocol.on_commit_done(commit_status);
        }
        for (const EpochProtocol::Outgoing& out : take_outgoing(&protocol)) {
          moved = true;
          ++sent[static_cast<size_t>(rank)];
          (*this)[out.to].on_message(rank, *decode_message(out.payload, rank));
        }
        spread_failure(rank);
      }
    }
  }

  // Every rank sends one record to every rank (ten to itself less the others) and ends the epoch.
  void begin(net::Rank rank, int64_t step = 7) {
    const bool each = ends_ == EpochProtocol::Ends::kOfEachRank;
    (*this)[rank].begin(step, 0.5, std::vector<uint64_t>(each ? static_cast<size_t>(size()) : 0, 1),
                        tally(10));
  }
  void deliver_all(net::Rank to) {
    if (ends_ == EpochProtocol::Ends::kByRoute) return (*this)[to].on_route_complete();
    for (net::Rank from = 0; from < size(); ++from) (*this)[to].on_delivered(from, 1);
  }
  static std::deque<EpochProtocol::Outgoing> take_outgoing(EpochProtocol* protocol) {
    return std::exchange(protocol->outgoing(), {});
  }
  static RecordTally tally(uint64_t records) { return {records, records * 48, records * 1'000'003}; }

  std::vector<EpochProtocol::Commit> commits;

 private:
  const EpochProtocol::Ends ends_;

 public:
  std::vector<uint64_t> sent;  // messages, by rank

 private:
  // As the ranks' conversations do.
  void spread_failure(net::Rank failed) {
    const Status why = (*this)[failed].failure();
    if (why.ok()) return;
    for (const auto& each : ranks_) {
      each->fail(error(why.code(), why.scope(), "rank {} failed: {}", failed, why.message()));
    }
  }

  std::vector<std::unique_ptr<EpochProtocol>> ranks_;
};

using State = EpochProtocol::State;

class EveryJobSize : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryJobSize, testing::Values(1, 2, 3, 8, 9, 10, 73, 100));

TEST_P(EveryJobSize, CommitsOnceWhenEverythingIsInAndDurable) {
  Ring ring(GetParam());
  for (net::Rank rank = 0; rank < ring.size(); ++rank) {
    ring.begin(rank);
    ring.deliver_all(rank);
  }
  ring.run();
  ASSERT_EQ(ring.commits.size(), 1u);
  EXPECT_EQ(ring.commits[0].step, 7);
  EXPECT_EQ(ring.commits[0].tally.records, 10u * static_cast<uint64_t>(ring.size()));
  for (net::Rank rank = 0; rank < ring.size(); ++rank) {
    EXPECT_EQ(ring[rank].state(), State::kDone);
    EXPECT_TRUE(ring[rank].failure().ok()) << ring[rank].failure().to_string();
  }
}

TEST_P(EveryJobSize, WaitsForTheLastRecordOfTheLastRank) {
  Ring ring(GetParam());
  for (net::Rank rank = 0; rank < ring.size(); ++rank) ring.begin(rank);
  for (net::Rank rank = 1; rank < ring.size(); ++rank) ring.deliver_all(rank);
  ring.run();
  EXPECT_TRUE(ring.commits.empty());
  EXPECT_EQ(ring[0].state(), State::kDraining);
  EXPECT_NE(ring[0].waiting_for().find("records of rank 0: 0 of 1"), std::string::npos)
      << ring[0].waiting_for();
  ring.deliver_all(0);
  ring.run();
  EXPECT_EQ(ring.commits.size(), 1u);
}

// By three hops: the route says when everything is in, and no rank tells all others.
TEST_P(EveryJobSize, CommitsOnceWhenTheRouteIsCompleteAndEverythingDurable) {
  Ring ring(GetParam(), EpochProtocol::Ends::kByRoute);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (net::Rank rank = 0; rank < ring.size(); ++rank) {
      ring[rank].open_epoch(EpochNumber(epoch));
      ring.begin(rank);
      if (rank != 0) ring.deliver_all(rank);
    }
    ring.run();
    EXPECT_EQ(ring.commits.size(), epoch) << "rank 0 has not everything";
    EXPECT_FALSE(ring[0].awaits_ends());
    ring.deliver_all(0);
    ring.run();
    ASSERT_EQ(ring.commits.size(), epoch + 1);
    for (net::Rank rank = 0; rank < ring.size(); ++rank) EXPECT_TRUE(ring[rank].failure().ok());
  }
  for (const uint64_t sent : ring.sent) EXPECT_LE(sent, 3 * 8u);
}

TEST(EpochProtocol, ByRouteANeighbourKnowsOfTheRankThatDoesNotCome) {
  for (net::Rank missing = 0; missing < 20; ++missing) {
    Ring ring(20, EpochProtocol::Ends::kByRoute);
    for (net::Rank rank = 0; rank < 20; ++rank) {
      if (rank != missing) ring.begin(rank);
    }
    ring.run();
    int named = 0;
    for (net::Rank rank = 0; rank < 20; ++rank) {
      if (rank == missing || !ring[rank].awaits_ends()) continue;
      ++named;
      EXPECT_NE(ring[rank].waiting_for().find(fmt::format("rank {} to end", missing)), std::string::npos);
    }
    EXPECT_GE(named, 1) << missing;
    EXPECT_LE(named, 4) << missing;
  }
}

TEST(EpochProtocol, ByRouteAnEndOfARankThatIsNoNeighbourIsRefused) {
  EpochProtocol protocol(0, 20, EpochProtocol::Ends::kByRoute);
  protocol.open_epoch(EpochNumber(0));
  protocol.on_message(3, EndMessage{EpochNumber(0), 0});
  EXPECT_TRUE(protocol.failure().ok());
  protocol.on_message(4, EndMessage{EpochNumber(0), 0});
  EXPECT_EQ(protocol.failure().code(), Code::kCorruption);
}

TEST(EpochProtocol, OneRanksFailureReachesAllWithItsReason) {
  Ring ring(12);
  for (net::Rank rank = 0; rank < 12; ++rank) ring.begin(rank);
  ring[7].fail(error(Code::kNoSpace, Scope::kFile, "part-000007.data: disk full"));
  for (net::Rank rank = 0; rank < 12; ++rank) ring.deliver_all(rank);
  ring.run();
  EXPECT_TRUE(ring.commits.empty());
  EXPECT_EQ(ring[7].failure().code(), Code::kNoSpace);
  for (net::Rank rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(ring[rank].state(), State::kDone);
    if (rank != 7) {
      EXPECT_NE(ring[rank].failure().message().find("rank 7 failed: part-000007.data"), std::string::npos);
    }
  }
}

TEST(EpochProtocol, AFailedCommitFailsTheEpochEverywhere) {
  Ring ring(3);
  for (net::Rank rank = 0; rank < 3; ++rank) {
    ring.begin(rank);
    ring.deliver_all(rank);
  }
  ring.run(error(Code::kIoError, Scope::kFile, "swale.json: rename failed"));
  for (net::Rank rank = 0; rank < 3; ++rank) EXPECT_FALSE(ring[rank].failure().ok());
}

TEST(EpochProtocol, MoreRecordsThanPromisedIsCorruptionThatNamesTheLink) {
  Ring ring(2);
  ring.begin(0);
  ring.begin(1);
  ring[1].on_delivered(0, 2);
  ring.run();
  EXPECT_EQ(ring[1].failure().code(), Code::kCorruption);
  EXPECT_NE(ring[1].failure().message().find("rank 0 sent 2 records to rank 1"), std::string::npos);
}

TEST(EpochProtocol, IndexedAndAppendedThatDifferAreNeverCommitted) {
  Ring ring(2);
  ring[0].begin(7, 0.5, {1, 1}, Ring::tally(10));
  RecordTally altered = Ring::tally(10);
  altered.digest ^= 1;
  ring[1].begin(7, 0.5, {1, 1}, altered);
  ring.deliver_all(0);
  ring.deliver_all(1);
  ring.run();
  EXPECT_TRUE(ring.commits.empty());
  EXPECT_EQ(ring[0].failure().code(), Code::kCorruption);
}

// By three hops keys have no checksum of their own: what was sent and what came are compared over all ranks.
TEST(EpochProtocol, KeysThatDidNotComeAsTheyWereSentAreNeverCommitted) {
  for (const uint64_t altered : {0, 1}) {
    Ring ring(5, EpochProtocol::Ends::kByRoute);
    for (net::Rank rank = 0; rank < ring.size(); ++rank) ring.begin(rank);
    ring[1].add_keys(1'000);
    ring[3].add_keys(500);
    ring[4].add_keys(0 - uint64_t{1'500} - altered);
    for (net::Rank rank = 0; rank < ring.size(); ++rank) ring.deliver_all(rank);
    ring.run();
    EXPECT_EQ(ring.commits.size(), 1 - altered);
    for (net::Rank rank = 0; rank < ring.size(); ++rank)
      EXPECT_EQ(ring[rank].failure().ok(), altered == 0) << ring[rank].failure().to_string();
  }
}

TEST(EpochProtocol, RanksThatDisagreeOnTheStepAreTold) {
  Ring ring(2);
  ring.begin(0, 7);
  ring.begin(1, 8);
  ring.deliver_all(0);
  ring.deliver_all(1);
  ring.run();
  EXPECT_TRUE(ring.commits.empty());
  EXPECT_EQ(ring[0].failure().code(), Code::kInvalidArgument);
  EXPECT_EQ(ring[1].failure().code(), Code::kInvalidArgument);
}

TEST(EpochProtocol, AnEndOfTheNextEpochIsKeptUntilThisOneIsOver) {
  Ring ring(2);
  for (net::Rank rank = 0; rank < 2; ++rank) {
    ring.begin(rank);
    ring.deliver_all(rank);
  }
  // Rank 1 has heard of the commit, rank 0's answer is slow: rank 1 ends epoch 1 first.
  ring.run();
  ring[1].open_epoch(EpochNumber(1));
  ring.begin(1);
  for (const auto& out : Ring::take_outgoing(&ring[1]))
    ring[out.to].on_message(1, *decode_message(out.payload, 1));
  EXPECT_TRUE(ring[0].failure().ok());
  ring[0].open_epoch(EpochNumber(1));
  EXPECT_TRUE(ring[0].ended(1));
  ring.begin(0);
  ring.deliver_all(0);
  ring.deliver_all(1);
  ring.run();
  EXPECT_EQ(ring.commits.size(), 2u);
}

TEST(EpochProtocol, ASecondEndOfOneEpochIsAFailure) {
  Ring ring(2);
  ring[0].on_message(1, EndMessage{EpochNumber(0), 5});
  ring[0].on_message(1, EndMessage{EpochNumber(0), 5});
  EXPECT_EQ(ring[0].failure().code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::imd::epoch_protocol_test
