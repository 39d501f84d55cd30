#include "net/rpc/rpc_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "net/rpc/testing/test_rpc_core.h"

namespace swale::net::rpc_core_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Ranks = RpcRanks;

TEST(RpcCore, AnswersACallWithWhatItWasAskedFor) {
  Ranks ranks(2);
  const auto id =
      ranks[0].call({.to = 1, .method = kLookup, .payload = "key", .owner = 7, .tag = 8}, ranks.now);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(ranks.move(0, 1), 1u);
  auto requests = ranks.requests(1);
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].from, 0);
  EXPECT_EQ(requests[0].method, kLookup);
  EXPECT_EQ(requests[0].payload, "key");
  EXPECT_TRUE(ranks.completions(0).empty());
  EXPECT_TRUE(ranks[1].wanted(requests[0].token));
  EXPECT_TRUE(ranks[1].reply(requests[0].token, RpcPayload("value"), ranks.now));
  EXPECT_FALSE(ranks[1].reply(requests[0].token, RpcPayload("again"), ranks.now));
  ranks.move(1, 0);
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].id, *id);
  EXPECT_EQ(done[0].from, 1);
  EXPECT_EQ(done[0].owner, 7u);
  EXPECT_EQ(done[0].tag, 8u);
  EXPECT_EQ(*done[0].response, "value");
  ranks.expect_at_rest();
}

TEST(RpcCore, PacksManySmallMessagesIntoOneFrame) {
  Ranks ranks(2);
  for (uint64_t i = 0; i < 40; ++i) ranks.call(0, 1, std::string(64, 'x'), 64, kForever, i);
  EXPECT_EQ(ranks.move(0, 1), 1u);  // 40 * 88 bytes
  EXPECT_EQ(ranks.echo(1), 40u);
  EXPECT_EQ(ranks.move(1, 0), 1u);
  EXPECT_THAT(ranks.completions(0), SizeIs(40));
}

TEST(RpcCore, ClosesAFrameOfVerySmallMessagesBeforeItIsFull) {
  Ranks ranks(2);
  for (size_t i = 0; i < kRpcFramePiecesMax + 1; ++i) ranks.call(0, 1, "", 0);
  EXPECT_EQ(ranks.move(0, 1), 2u);
  EXPECT_EQ(ranks.echo(1), kRpcFramePiecesMax + 1);
  EXPECT_EQ(ranks.move(1, 0), 2u);
  EXPECT_THAT(ranks.completions(0), SizeIs(kRpcFramePiecesMax + 1));
  ranks.expect_at_rest();
}

TEST(RpcCore, KeepsCompletionsThatTheirTakerHadNoMemoryFor) {
  Ranks ranks(1);
  for (uint64_t tag = 0; tag < 3; ++tag) ranks.call(0, 0, "x", kKiB, kForever, tag);
  ranks.echo(0);
  size_t taken = 0;
  const auto take = [&](RpcCompletion&& each) {
    if (taken == 1) throw std::bad_alloc();
    EXPECT_EQ(each.tag, taken++);
  };
  EXPECT_THROW(ranks[0].take_completions(take), std::bad_alloc);
  EXPECT_EQ(ranks[0].open_calls(), 2u);
  const auto rest = ranks.completions(0);
  ASSERT_THAT(rest, SizeIs(2));
  EXPECT_EQ(rest[0].tag, 1u);
  EXPECT_EQ(*rest[1].response, "x");
  ranks.expect_at_rest();
}

TEST(RpcCore, CutsLargeMessagesAndLetsSmallOnesOvertake) {
  Ranks ranks(2, [](RpcParams& p) { p.window_bytes = kMiB; });
  const std::string large = pattern(20'000);
  ranks.call(0, 1, large, 20'000, kForever, 1);
  ranks.call(0, 1, "small", 100, kForever, 2);
  // The first frame is full of the large one; the small one comes with the second.
  ASSERT_TRUE(ranks[1].on_frame(0, ranks.frame(0, 1), ranks.now).ok());
  EXPECT_FALSE(ranks[1].any_request());
  ASSERT_TRUE(ranks[1].on_frame(0, ranks.frame(0, 1), ranks.now).ok());
  const auto early = ranks.requests(1);
  ASSERT_THAT(early, SizeIs(1));
  EXPECT_EQ(early[0].payload, "small");
  EXPECT_EQ(ranks.move(0, 1), 3u);
  ranks[1].reply(early[0].token, RpcPayload("s"), ranks.now);
  ranks.echo(1);
  ranks.exchange();
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(2));
  EXPECT_EQ(done[0].tag, 2u);
  EXPECT_EQ(*done[1].response, large);
  ranks.expect_at_rest();
}

TEST(RpcCore, CarriesSixteenMebibytesBothWaysAndNoMore) {
  Ranks ranks(2);
  const std::string largest = pattern(kRpcMessageBytesMax);
  ranks.call(0, 1, largest, kRpcMessageBytesMax);
  ranks.exchange();
  EXPECT_EQ(ranks.echo(1), 1u);
  ranks.exchange();
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_TRUE(*done[0].response == largest);
  const auto more = ranks[0].call({.to = 1, .payload = std::string(kRpcMessageBytesMax + 1, 'x')}, ranks.now);
  EXPECT_EQ(more.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ranks[0].call({.to = 2}, ranks.now).status().code(), Code::kInvalidArgument);
  ranks.expect_at_rest();
}

std::vector<MutableBytes> places_in(std::string& memory, std::initializer_list<size_t> sizes) {
  std::vector<MutableBytes> places;
  size_t at = 0;
  for (const size_t size : sizes)
    places.push_back(std::span(memory).subspan(std::exchange(at, at + size), size));
  return places;
}

TEST(RpcCore, PutsAResponseWhereTheCallerWantsIt) {
  Ranks ranks(2, [](RpcParams& p) { p.window_bytes = kMiB; });
  const std::string answer = pattern(20'000);  // some frames
  for (const Rank to : {0, 1}) {
    std::string memory(20'010, '?');
    auto places = places_in(memory, {3, 0, 15'000, 5'007});
    ASSERT_TRUE(
        ranks[0]
            .call({.to = to, .payload = answer, .response_bytes_max = 20'010, .into = places}, ranks.now)
            .ok());
    ranks.exchange();
    EXPECT_EQ(ranks.echo(to), 1u);
    ranks.exchange();
    const auto done = ranks.completions(0);
    ASSERT_THAT(done, SizeIs(1));
    ASSERT_TRUE(done[0].response.ok());
    EXPECT_EQ(*done[0].response, "");
    EXPECT_TRUE(memory == answer + std::string(10, '?'));
    EXPECT_EQ(places[2].size(), 0u);
    EXPECT_EQ(places[3].size(), 10u);
  }
  std::string memory(5, '?');
  auto places = places_in(memory, {5});
  const RpcCall too_long{.to = 1, .response_bytes_max = 6, .into = places};
  EXPECT_EQ(ranks[0].call(RpcCall(too_long), ranks.now).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ranks[0].call_many(std::vector<Rank>{0, 1}, too_long, ranks.now).status().code(),
            Code::kInvalidArgument);
  ranks.expect_at_rest();
}

// What a frame has taken by then is copied once; the rest twice.
TEST(RpcCore, RepliesWithBytesThatAreLent) {
  for (const size_t frames : {0, 1, 100}) {
    for (const Rank to : {0, 1}) {
      Ranks ranks(2, [](RpcParams& p) { p.window_bytes = kMiB; });
      ranks.call(0, to, "q", 20'000);
      ranks.exchange();
      const auto requests = ranks.requests(to);
      ASSERT_THAT(requests, SizeIs(1));
      const std::string answer = pattern(20'000);
      std::string lent = answer;
      EXPECT_TRUE(ranks[to].reply(requests[0].token, RpcPayload::lent(lent), ranks.now));
      for (size_t i = 0; i < frames && to == 1 && ranks[1].has_frame(0); ++i)
        ASSERT_TRUE(ranks[0].on_frame(1, ranks.frame(1, 0), ranks.now).ok());
      ranks[to].keep(requests[0].token);
      std::fill(lent.begin(), lent.end(), '?');
      ranks.exchange();
      const auto done = ranks.completions(0);
      ASSERT_THAT(done, SizeIs(1));
      EXPECT_TRUE(*done[0].response == answer) << frames << " frames, to " << to;
      ranks.expect_at_rest();
    }
  }
}

// The caller has its memory back when the call is complete, whatever comes later.
TEST(RpcCore, PutsNothingIntoThePlaceOfACallThatIsOver) {
  Ranks ranks(2, [](RpcParams& p) { p.window_bytes = kMiB; });
  std::string memory(20'000, '?');
  auto places = places_in(memory, {20'000});
  const auto id = ranks[0].call(
      {.to = 1, .payload = std::string(20'000, 'x'), .response_bytes_max = 20'000, .into = places},
      ranks.now);
  ASSERT_TRUE(id.ok());
  ranks.exchange();
  EXPECT_EQ(ranks.echo(1), 1u);
  ASSERT_TRUE(ranks[0].on_frame(1, ranks.frame(1, 0), ranks.now).ok());
  const size_t left = places[0].size();
  EXPECT_TRUE(left > 0 && left < 20'000);
  EXPECT_TRUE(ranks[0].cancel(*id, ranks.now));
  const std::string then = memory;
  ranks.exchange();
  EXPECT_TRUE(memory == then);
  EXPECT_EQ(places[0].size(), left);
  EXPECT_EQ(ranks.completions(0).front().response.status().code(), Code::kAborted);
  ranks.expect_at_rest();
}

TEST(RpcCore, CallsItselfWithoutFrames) {
  for (const int32_t size : {1, 2}) {
    Ranks ranks(size);
    ranks.call(0, 0, "to myself");
    const std::string largest = pattern(kRpcMessageBytesMax);
    ranks.call(0, 0, largest, kRpcMessageBytesMax, kForever, 1);
    EXPECT_EQ(ranks.echo(0), 2u);
    auto done = ranks.completions(0);
    ASSERT_THAT(done, SizeIs(2));
    EXPECT_EQ(*done[0].response, "to myself");
    EXPECT_TRUE(*done[1].response == largest);
    // A failure, a cancellation before and one after the request was taken, an unknown method.
    ranks.call(0, 0, "fails");
    ranks[0].reply(ranks.requests(0).at(0).token, error(Code::kNotFound, Scope::kOperation, "no such key"),
                   ranks.now);
    EXPECT_TRUE(ranks[0].cancel(ranks.call(0, 0, "early"), ranks.now));
    const CallId late = ranks.call(0, 0, "late");
    const auto taken = ranks.requests(0);
    ASSERT_THAT(taken, SizeIs(1));
    EXPECT_TRUE(ranks[0].cancel(late, ranks.now));
    EXPECT_FALSE(ranks[0].wanted(taken[0].token));
    EXPECT_FALSE(ranks[0].reply(taken[0].token, RpcPayload("x"), ranks.now));
    ASSERT_TRUE(ranks[0].call({.to = 0, .method = 9}, ranks.now).ok());
    EXPECT_TRUE(ranks.requests(0).empty());
    done = ranks.completions(0);
    ASSERT_THAT(done, SizeIs(4));
    EXPECT_EQ(done[0].response.status().code(), Code::kNotFound);
    EXPECT_EQ(done[1].response.status().code(), Code::kAborted);
    EXPECT_EQ(done[2].response.status().code(), Code::kAborted);
    EXPECT_EQ(done[3].response.status().code(), Code::kUnsupported);
    ranks.expect_at_rest();
  }
}

TEST(RpcCore, ADeadlineNamesRankHostMethodAndWaitAndTellsTheServer) {
  Ranks ranks(2);
  ranks.call(0, 1, "x", 100, ranks.now + milliseconds(1500));
  ranks.move(0, 1);
  const auto taken = ranks.requests(1);
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(ranks[0].next_deadline(), ranks.now + milliseconds(1500));
  ranks.now += milliseconds(1499);
  ranks[0].tick(ranks.now);
  EXPECT_TRUE(ranks.completions(0).empty());
  ranks.now += milliseconds(1);
  ranks[0].tick(ranks.now);
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].response.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(done[0].response.status().message(),
            "rank 1 (host host1), asked for \"echo\": no answer within 1.500 s");
  EXPECT_TRUE(ranks[1].wanted(taken[0].token));
  ranks.move(0, 1);
  EXPECT_FALSE(ranks[1].wanted(taken[0].token));
  EXPECT_FALSE(ranks[1].reply(taken[0].token, RpcPayload("late"), ranks.now));
  ranks.move(1, 0);
  EXPECT_TRUE(ranks.completions(0).empty());
  ranks.expect_at_rest();
}

TEST(RpcCore, AnAnswerThatCrossesTheCancellationIsIgnored) {
  Ranks ranks(2);
  const CallId id = ranks.call(0, 1, "x");
  ranks.move(0, 1);
  ranks.echo(1);
  EXPECT_TRUE(ranks[0].cancel(id, ranks.now));
  EXPECT_FALSE(ranks[0].cancel(id, ranks.now));
  ranks.exchange();
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].response.status().code(), Code::kAborted);
  ranks.expect_at_rest();
}

TEST(RpcCore, ACancelledRequestIsDroppedInTheMiddle) {
  Ranks ranks(2);
  const CallId id = ranks.call(0, 1, pattern(20'000));
  ASSERT_TRUE(ranks[1].on_frame(0, ranks.frame(0, 1), ranks.now).ok());
  ranks[0].cancel(id, ranks.now);
  ranks.exchange();
  EXPECT_TRUE(ranks.requests(1).empty());
  EXPECT_THAT(ranks.completions(0), SizeIs(1));
  ranks.expect_at_rest();
}

TEST(RpcCore, ACancelledResponseEndsInTheMiddle) {
  Ranks ranks(2);
  const CallId id = ranks.call(0, 1, "x", 20'000);
  ranks.move(0, 1);
  ranks[1].reply(ranks.requests(1).at(0).token, RpcPayload(pattern(20'000)), ranks.now);
  ASSERT_TRUE(ranks[0].on_frame(1, ranks.frame(1, 0), ranks.now).ok());
  ranks[0].cancel(id, ranks.now);
  ranks.move(0, 1);
  EXPECT_EQ(ranks.move(1, 0), 1u);  // and not the four that were left
  EXPECT_THAT(ranks.completions(0), SizeIs(1));
  ranks.expect_at_rest();
}

TEST(RpcCore, TheWindowBoundsWhatAServerHolds) {
  Ranks ranks(2);  // 64 KiB
  for (uint64_t i = 0; i < 100; ++i) ranks.call(0, 1, std::string(3000, 'x'), 1000, kForever, i);
  ranks.move(0, 1);
  EXPECT_EQ(ranks[1].open_requests(), 15u);  // of 3000 + 1000 + 256 bytes
  EXPECT_LE(ranks[1].held_bytes(), 64 * kKiB);
  size_t served = 0;
  std::vector<uint64_t> order;
  while (served < 100) {
    served += ranks.echo(1);
    ranks.exchange();
    for (const auto& each : ranks.completions(0)) order.push_back(each.tag);
    ASSERT_LE(ranks[1].held_bytes(), 64 * kKiB);
  }
  EXPECT_THAT(order, SizeIs(100));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  ranks.expect_at_rest();
}

TEST(RpcCore, WhatExceedsTheWindowIsOfferedAndOthersAreNotHeldUp) {
  Ranks ranks(3, [](RpcParams& p) {
    p.message_bytes_max = 200'000;
    p.granted_bytes_max = p.calls_bytes_max = 2 * 400'256;
  });
  for (const Rank caller : {0, 1}) {
    for (uint64_t i = 0; i < 2; ++i) ranks.call(caller, 2, pattern(200'000), 200'000, kForever, i);
  }
  EXPECT_EQ(ranks[0].call({.to = 2}, ranks.now).status().code(), Code::kResourceExhausted);
  ranks.exchange();
  EXPECT_EQ(ranks[2].open_requests(), 4u);
  EXPECT_EQ(ranks[2].held_bytes(), 2 * 400'256u);  // two are granted
  auto first = ranks.requests(2);
  ASSERT_THAT(first, SizeIs(2));
  for (RpcRequest& each : first) ranks[2].reply(each.token, RpcPayload(std::move(each.payload)), ranks.now);
  ranks.exchange();
  EXPECT_EQ(ranks.echo(2), 2u);
  ranks.exchange();
  for (const Rank caller : {0, 1}) {
    const auto done = ranks.completions(caller);
    ASSERT_THAT(done, SizeIs(2));
    for (const auto& each : done) EXPECT_TRUE(*each.response == pattern(200'000));
  }
  ranks.expect_at_rest();
}

TEST(RpcCore, CancelledOffersAreForgottenBeforeAndAfterTheGrant) {
  for (const int moves : {0, 1, 2, 3}) {
    Ranks ranks(2);
    const CallId id = ranks.call(0, 1, pattern(200'000));
    if (moves > 0) ranks.move(0, 1);
    if (moves > 1) ranks.move(1, 0);
    if (moves > 2) {
      ASSERT_TRUE(ranks[1].on_frame(0, ranks.frame(0, 1), ranks.now).ok());
    }
    EXPECT_TRUE(ranks[0].cancel(id, ranks.now));
    ranks.exchange();
    EXPECT_TRUE(ranks.requests(1).empty());
    EXPECT_THAT(ranks.completions(0), SizeIs(1));
    ranks.expect_at_rest();
  }
}

}  // namespace
}  // namespace swale::net::rpc_core_test
