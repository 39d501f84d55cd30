// The three-hop route: its memory, and whole jobs on one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "net/route/testing/threehop_test_job.h"

namespace swale::net::threehop_test {
namespace {

using test::blocks;
using test::Case;
using test::Job;
using test::kChannel;
using test::kSecret;
using test::map_of;
using test::Member;

// The figure, from the code that takes the memory.
TEST(ThreeHop, BuffersOfARankOf4096NodesOf32FitTheBudget) {
  const auto map = std::make_shared<const NodeMap>(blocks(std::vector<int32_t>(4096, 32)));
  ThreeHopRouter::Params params;
  params.nodes = map;
  params.hops = ThreeHopRouter::hops_within(*map, 8 * kMiB);
  class Nothing : public MessageSink {
    bool deliver(Rank, Bytes) override { return true; }
    void epoch_complete(uint32_t) override {}
  } sink;
  for (const Rank rank : {0, 31, 70'000}) {
    params.rank = rank;
    const auto router = ThreeHopRouter::create(params, &sink);
    ASSERT_TRUE(router.ok()) << router.status().to_string();
    EXPECT_LE((*router)->buffer_bytes(), 8 * kMiB);
    EXPECT_GT((*router)->buffer_bytes(), 4 * kMiB) << "canary: links without buffers would be free";
    EXPECT_LE((*router)->state_bytes(), kMiB);
    EXPECT_LE((*router)->peers().size(), 159u);
    RecordProperty("buffer_bytes", static_cast<int>((*router)->buffer_bytes()));
    RecordProperty("state_bytes", static_cast<int>((*router)->state_bytes()));
  }
}

TEST(ThreeHop, HopsWithinABudgetAreTheSameForTheWholeJobAndNeverRefused) {
  const auto total = [](const NodeMap& map, uint64_t budget) {
    ThreeHopRouter::Params params;
    params.nodes = std::make_shared<const NodeMap>(map);
    params.hops = ThreeHopRouter::hops_within(map, budget);
    EXPECT_LE(ThreeHopRouter::message_bytes_max(params.hops), params.hops[0].frame_bytes);
    uint64_t most = 0;
    for (Rank rank = 0; rank < map.ranks(); rank += 1 + map.ranks() / 7) {
      params.rank = rank;
      const auto router = ThreeHopRouter::create(params, nullptr);
      EXPECT_TRUE(router.ok());
      most = std::max(most, (*router)->buffer_bytes());
    }
    EXPECT_LE(most, ThreeHopRouter::buffer_bytes(map, params.hops));
    return most;
  };
  EXPECT_LE(total(blocks({4, 4}), 2 * kMiB), 2 * kMiB);
  EXPECT_LE(total(blocks(std::vector<int32_t>(512, 64)), 4 * kMiB), 4 * kMiB);
  EXPECT_LE(total(blocks(std::vector<int32_t>(8192, 16)), 8 * kMiB), 8 * kMiB);
  EXPECT_GT(total(blocks({1, 1, 1, 1}), kMiB), kMiB / 2) << "what is left goes to windows";
  EXPECT_GT(total(blocks(std::vector<int32_t>(100, 1)), 1), 0u)
      << "not even the least fits: it is taken all the same";
}

// SWALE_THREEHOP_ROUNDS: how often; make test-long sends millions of messages.
uint64_t rounds() {
  const char* const text = std::getenv("SWALE_THREEHOP_ROUNDS");
  return text == nullptr ? 6 : std::strtoull(text, nullptr, 10);
}

TEST(ThreeHop, DeliversEveryMessageOnceInOrderAndInItsEpoch) {
  uint64_t messages = 0;
  for (uint64_t round = 0; round < rounds(); ++round) {
    for (const std::vector<int32_t>& nodes : {std::vector<int32_t>{1},
                                              {3},
                                              {1, 1},
                                              {2, 2},
                                              {4, 4, 4, 4},
                                              {1, 3, 2},
                                              {5, 1, 1, 1, 1, 1, 1},
                                              {2, 7, 1, 4}}) {
      for (const bool cyclic : {false, true}) {
        Case what;
        what.ranks_per_node = nodes;
        what.cyclic = cyclic;
        what.seed = round * 100 + nodes.size() + (cyclic ? 50 : 0);
        what.window = static_cast<uint16_t>(1 + round % 3);
        what.shared_frames = static_cast<uint32_t>(round % 2 * 3);
        what.message_bytes_max = round % 2 == 0 ? 60 : 1000;
        Job job(what);
        const Status status = job.run();
        ASSERT_TRUE(status.ok()) << status.to_string() << ", " << nodes.size() << " nodes, seed "
                                 << what.seed;
        messages += job.taken();
      }
    }
  }
  EXPECT_GT(messages, 50'000 * rounds());
}

// One rank takes nothing while everybody sends, with the least buffers that there can be: everything fills up
// and stops. When it takes again, everything arrives.
TEST(ThreeHop, AStuckReceiverStopsNothingForGood) {
  for (uint64_t round = 0; round < rounds(); ++round) {
    for (const std::vector<int32_t>& nodes : {std::vector<int32_t>{4, 4, 4}, {1, 3, 2}, {2, 2}}) {
      Case what;
      what.ranks_per_node = nodes;
      what.messages_per_rank = 3000;
      what.stuck = static_cast<Rank>(round % 4);
      what.seed = round + 7;
      Job job(what);
      const Status status = job.run();
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(job.unstuck()) << "the job never came to a stop: the test is too small";
    }
  }
}

// Canaries: the checks above see a network that does wrong.
TEST(ThreeHop, LostDoubledSwappedAndAlteredFramesAreFound) {
  const auto outcome = [](Case::Wrong wrong) {
    Case what;
    what.ranks_per_node = {2, 2, 2};
    what.wrong = wrong;
    what.window = 4;
    what.messages_per_rank = wrong == Case::Wrong::kAltersAnEnd ? 4 : 600;
    what.message_bytes_max = wrong == Case::Wrong::kAltersAnEnd ? 60 : 900;
    what.epochs = 4;
    Job job(what);
    return job.run();
  };
  EXPECT_TRUE(outcome(Case::Wrong::kNothing).ok());
  EXPECT_FALSE(outcome(Case::Wrong::kDropsAFrame).ok());
  EXPECT_EQ(outcome(Case::Wrong::kDoublesAFrame).code(), Code::kCorruption);
  EXPECT_EQ(outcome(Case::Wrong::kSwapsFrames).code(), Code::kCorruption);
  const Status altered = outcome(Case::Wrong::kAltersAnEnd);
  EXPECT_EQ(altered.code(), Code::kCorruption);
  EXPECT_THAT(std::string(altered.message()), testing::HasSubstr("have come"));
}

// Canary: a job that can never finish is seen to stand still, and its other ranks hold no more than their
// buffers.
TEST(ThreeHop, AJobThatStandsStillIsNoticed) {
  Case what;
  what.ranks_per_node = {2, 2};
  what.messages_per_rank = 2000;
  what.stuck = 1;
  what.stuck_for_good = true;
  Job job(what);
  EXPECT_EQ(job.run().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(job.member(0).epochs_complete, 0u);
}

// What it takes to end an epoch does not grow with the ranks of the job, nor with the links that carried
// nothing.
TEST(ThreeHop, AThousandRanksEndAQuietEpochWithAFewMessagesEach) {
  Case what;
  what.ranks_per_node = std::vector<int32_t>(64, 16);
  what.messages_per_rank = 0;
  what.epochs = 1;
  Job job(what);
  const Status status = job.run();
  ASSERT_TRUE(status.ok()) << status.to_string();
  uint64_t most = 0;
  for (size_t rank = 0; rank < 1024; ++rank) most = std::max(most, job.frames_of(rank));
  EXPECT_LE(most, 13u);
  EXPECT_GE(most, 10u) << "canary: a leader talks to its children";
  EXPECT_LE(job.frames(), 6 * 1024u + 200);
}

TEST(ThreeHop, AThousandRanksEndAnEpochWithFramesToTheLinksThatCarriedMessages) {
  Case what;
  what.ranks_per_node = std::vector<int32_t>(64, 16);
  what.messages_per_rank = 16;
  what.epochs = 2;
  Job job(what);
  const Status status = job.run();
  ASSERT_TRUE(status.ok()) << status.to_string();
  const uint64_t links = 15 + 4 + 15;  // of hops 1, 2 and 3
  EXPECT_LE(job.frames(), 1024 * what.epochs * (2 * links + 20))
      << "a frame and a credit a link, and the barriers";
  EXPECT_GT(job.taken(), 1024u * 16);
}

TEST(ThreeHop, ALostPeerIsNamedWithItsHop) {
  Case what;
  what.ranks_per_node = {2, 2};
  const auto map = map_of(what);
  Rng rng(1);
  Member member(what, 0, map, &rng);
  member.router->on_down(3, error(Code::kUnavailable, Scope::kPeer, "silent"));
  EXPECT_TRUE(member.router->failure().ok()) << "rank 3 has no link with rank 0: rank 1 represents the node";
  ASSERT_EQ(map->representative(1, 0), 3);
  Member other(what, 1, map, &rng);
  other.router->on_down(3, error(Code::kUnavailable, Scope::kPeer, "silent for 30 s"));
  EXPECT_THAT(std::string(other.router->failure().message()),
              testing::AllOf(testing::HasSubstr("rank 3"), testing::HasSubstr("hop 2"),
                             testing::HasSubstr("node 1"), testing::HasSubstr("silent for 30 s")));
  EXPECT_FALSE(other.router->send(0, "message"));
}

// Frames with right headers and any content: an error, never a read or a write beyond them (AddressSanitizer
// looks).
TEST(ThreeHop, AnyContentIsReadOrRefused) {
  Rng rng(3);
  uint64_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Case what;
    what.ranks_per_node = {2, 3, 2};
    const auto map = map_of(what);
    Member member(what, 1, map, &rng);
    const int hop = 1 + static_cast<int>(rng.below(3));
    FrameHeader header;
    header.channel = kChannel + static_cast<uint32_t>(hop) - 1;
    header.secret = kSecret;
    std::string payload(2 + rng.below(round % 10 == 0 ? 1200 : 40), '\0');
    for (char& byte : payload) byte = static_cast<char>(rng.below(rng.chance(1, 2) ? 6 : 256));
    payload.front() = static_cast<char>(rng.below(3));
    const auto exact = std::make_unique<char[]>(payload.size());
    std::copy(payload.begin(), payload.end(), exact.get());
    const Rank from = hop == 2 ? map->representative(1 + static_cast<int32_t>(rng.below(2)), 0) : 0;
    member.router->on_frame(from, header, Bytes(exact.get(), payload.size()));
    refused += member.router->failure().ok() ? 0 : 1;
    while (member.router->next_post().has_value()) {
    }
  }
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace swale::net::threehop_test
