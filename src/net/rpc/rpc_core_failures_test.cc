// Peers of an RpcCore that are gone, stuck, refuse, or break the protocol; the format of pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/coding.h"
#include "net/fabric/status_codec.h"
#include "net/rpc/testing/test_rpc_core.h"

namespace swale::net::rpc_core_failures_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Ranks = RpcRanks;

TEST(RpcCore, APeerThatIsGoneFailsItsCallsByName) {
  Ranks ranks(3);
  ranks.call(0, 1, "sent", 100, kForever, 1);
  ranks.move(0, 1);
  ranks.call(0, 1, "not sent", 100, kForever, 2);
  ranks.call(0, 2, "another", 100, kForever, 3);
  ranks.call(1, 0, "from the dead", 100);
  ranks.call(1, 0, "from the dead, taken", 100);
  ranks.move(1, 0);
  std::vector<RpcRequest> taken;
  ranks[0].take_requests(1, &taken, ranks.now);
  ranks.now += milliseconds(2250);
  ranks[0].on_down(1, error(Code::kUnavailable, Scope::kPeer, "silent for 2 s"), ranks.now);
  ranks.call(0, 1, "too late", 100, kForever, 4);
  auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(3));
  EXPECT_EQ(done[0].response.status().code(), Code::kUnavailable);
  EXPECT_EQ(done[0].response.status().scope(), Scope::kPeer);
  EXPECT_EQ(done[0].response.status().message(),
            "rank 1 (host host1), asked for \"echo\", 2.250 s ago: silent for 2 s");
  EXPECT_EQ(done[2].tag, 4u);
  EXPECT_EQ(ranks[0].open_requests(), 1u);
  EXPECT_FALSE(ranks[0].wanted(taken[0].token));
  EXPECT_FALSE(ranks[0].reply(taken[0].token, RpcPayload("x"), ranks.now));
  EXPECT_EQ(ranks[0].open_requests(), 0u);
  EXPECT_FALSE(ranks[0].has_frame(1));
  EXPECT_TRUE(ranks[0].on_frame(1, ranks.frame(1, 0), ranks.now).ok());  // what was still on its way
  ranks.move(0, 2);
  ranks.echo(2);
  ranks.move(2, 0);
  done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(*done[0].response, "another");
}

TEST(RpcCore, AStuckPeerKeepsNobodyElseFromCalling) {
  Ranks ranks(3, [](RpcParams& p) { p.calls_max = 50; });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 49; ++i) ranks.call(0, 1, std::string(2000, 'x'), 1000, ranks.now + seconds(1));
    ranks.call(0, 2, "alive");
    ranks.move(0, 2);
    ranks.echo(2);
    ranks.move(2, 0);
    auto done = ranks.completions(0);
    ASSERT_THAT(done, SizeIs(1));
    EXPECT_TRUE(done[0].response.ok());
    ranks.now += seconds(2);
    if (round == 3) ranks.frame(0, 1);  // it has taken some, and answers none
    ranks[0].tick(ranks.now);
    ASSERT_THAT(ranks.completions(0), SizeIs(49));
    EXPECT_EQ(ranks[0].open_calls(), 0u);
  }
}

TEST(RpcCore, AResponseLongerThanTheCallerTakesFailsTheCall) {
  Ranks ranks(2);
  ranks.call(0, 1, "x", 10);
  ranks.move(0, 1);
  ranks[1].reply(ranks.requests(1).at(0).token, RpcPayload("eleven byte"), ranks.now);
  ranks.move(1, 0);
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].response.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(done[0].response.status().message()), HasSubstr("has 11 bytes"));
  ranks.expect_at_rest();
}

TEST(RpcCore, CarriesFailuresOfTheServiceAndRefusesUnknownMethods) {
  Ranks ranks(2);
  ranks.call(0, 1, "x");
  ASSERT_TRUE(ranks[0].call({.to = 1, .method = 77}, ranks.now).ok());
  ranks.move(0, 1);
  const auto taken = ranks.requests(1);
  ASSERT_THAT(taken, SizeIs(1));
  ranks[1].reply(taken[0].token,
                 error(Code::kNotFound, Scope::kFile, "no such key {}", std::string(9000, 'k')), ranks.now);
  ranks.exchange();
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(2));
  EXPECT_EQ(done[0].response.status().code(), Code::kUnsupported);
  EXPECT_EQ(done[1].response.status().code(), Code::kNotFound);
  EXPECT_EQ(done[1].response.status().scope(), Scope::kFile);
  EXPECT_THAT(std::string(done[1].response.status().message()), HasSubstr("asked for \"echo\""));
  ranks.expect_at_rest();
}

TEST(RpcCore, OneToManyIsAllOrNothing) {
  Ranks ranks(4, [](RpcParams& p) { p.calls_max = 5; });
  const std::vector<Rank> all{0, 1, 2, 3};
  const auto ids = ranks[1].call_many(all, {.method = kEcho, .payload = "to all", .tag = 5}, ranks.now);
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, SizeIs(4));
  EXPECT_EQ(ranks[1].call_many(all, {.payload = "again"}, ranks.now).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(ranks[1].open_calls(), 4u);
  const std::vector<Rank> wrong{0, 4};
  EXPECT_EQ(ranks[1].call_many(wrong, {}, ranks.now).status().code(), Code::kInvalidArgument);
  ranks.exchange();
  for (const Rank rank : all) EXPECT_EQ(ranks.echo(rank), 1u);
  ranks.exchange();
  std::vector<bool> heard(4);
  for (const auto& each : ranks.completions(1)) {
    EXPECT_EQ(*each.response, "to all");
    EXPECT_EQ(each.tag, 5u);
    heard[static_cast<size_t>(each.from)] = true;
  }
  EXPECT_EQ(heard, std::vector<bool>(4, true));
  ranks.expect_at_rest();
}

TEST(RpcCore, AFailureOfTheConversationEndsAllCalls) {
  Ranks ranks(2);
  ranks.call(0, 1, "x");
  ranks.call(0, 0, "y");
  ranks[0].fail(error(Code::kIoError, Scope::kFatal, "no memory"), ranks.now);
  ranks.call(0, 1, "z");
  const auto done = ranks.completions(0);
  ASSERT_THAT(done, SizeIs(3));
  for (const auto& each : done) {
    EXPECT_EQ(each.response.status().code(), Code::kAborted);
    EXPECT_THAT(std::string(each.response.status().message()), HasSubstr("no memory"));
  }
  EXPECT_FALSE(ranks[0].has_frame(1));
  EXPECT_EQ(ranks[0].open_requests(), 0u);
}

TEST(RpcCore, RefusesParametersThatCanNotWork) {
  EXPECT_TRUE(RpcCore::check(params_of(0, 1)).ok());
  const auto refused = [](const std::function<void(RpcParams&)>& change) {
    RpcParams params = params_of(0, 2);
    change(params);
    return RpcCore::check(params).code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](RpcParams& p) { p.rank = 2; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.frame_bytes = 100; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.window_bytes = 100; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.granted_bytes_max = kMiB; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.calls_bytes_max = kMiB; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.calls_max = 0; }));
  EXPECT_TRUE(refused([](RpcParams& p) { p.message_bytes_max = kRpcMessageBytesMax + 1; }));
}

// ---- peers that break the protocol

std::string piece(PieceHeader header, Bytes body = {}) {
  std::string bytes(PieceHeader::kBytes, '\0');
  header.piece_bytes = static_cast<uint32_t>(body.size());
  header.encode(bytes.data());
  return bytes.append(body);
}

TEST(RpcFormat, RoundTripsPieces) {
  const PieceHeader header{PieceKind::kRequest, 7, 0, 0x1122334455667788, 9, 10};
  const std::string two = piece(header, "body") + piece({PieceKind::kCancel, 0, 0, 5, 0, 0});
  Bytes rest = two;
  const auto first = take_piece(&rest);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->header.kind, PieceKind::kRequest);
  EXPECT_EQ(first->header.method, 7u);
  EXPECT_EQ(first->header.id, 0x1122334455667788u);
  EXPECT_EQ(first->header.message_bytes, 9u);
  EXPECT_EQ(first->header.extra, 10u);
  EXPECT_EQ(first->body, "body");
  const auto second = take_piece(&rest);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->header.kind, PieceKind::kCancel);
  EXPECT_TRUE(rest.empty());
}

TEST(RpcFormat, RefusesWhatIsNoPiece) {
  const auto refused = [](const std::string& bytes) {
    Bytes rest = bytes;
    const auto taken = take_piece(&rest);
    return !taken.ok() && taken.status().code() == Code::kCorruption && rest.size() == bytes.size();
  };
  const std::string good = piece({PieceKind::kRequest, 0, 0, 1, 4, 4}, "body");
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused(good.substr(0, 23)));
  EXPECT_TRUE(refused(good.substr(0, good.size() - 1)));
  for (const int at : {0, 1, 19}) {
    std::string bad = good;
    bad[static_cast<size_t>(at)] = '\x7f';
    EXPECT_TRUE(refused(bad)) << at;
  }
  EXPECT_TRUE(refused(piece({PieceKind::kRequest, 0, 0, 1, 3, 4}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kRequest, 0, 0, 1, 4, 17 << 20}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kMoreRequest, 0, 0, 1, 8, 5}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kMoreResponse, 0, 0, 1, 8, 4})));
  EXPECT_TRUE(refused(piece({PieceKind::kResponse, 1, 0, 1, 4, 0}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kResponse, 0, 0, 1, 4, 1}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kFailure, 0, 0, 1, 5, 0}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kOffer, 0, 0, 1, 5, 0}, "body")));
  EXPECT_TRUE(refused(piece({PieceKind::kCancel, 0, 0, 1, 1, 0})));
  EXPECT_TRUE(refused(piece({PieceKind::kGrant, 0, 0, 1, 0, 1})));
}

TEST(RpcCore, RefusesPeersThatBreakTheProtocol) {
  const auto said = [](
                        const std::string& frame, const std::function<void(Ranks&)>& before = [](Ranks&) {}) {
    Ranks ranks(2);
    before(ranks);
    const Status status = ranks[0].on_frame(1, frame, ranks.now);
    EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
    EXPECT_EQ(status.scope(), Scope::kPeer);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (host host1)"));
    return std::string(status.message());
  };
  const auto asks = [](Ranks& ranks) { ranks.call(0, 1, "x", 4); };
  const auto asked = [](Ranks& ranks) {
    ranks.call(0, 1, "x", 4);
    ranks.move(0, 1);
  };
  constexpr uint64_t kFirst = uint64_t{1} << 32;  // the first call of a rank
  EXPECT_THAT(said(""), HasSubstr("needs 24 bytes"));
  EXPECT_THAT(said(piece({PieceKind::kRequest, 0, 0, 1, 60'000, 6'000}, "x")), HasSubstr("was not granted"));
  const std::string half = piece({PieceKind::kRequest, 0, 0, 1, 30'000, 5'000}, "x");
  EXPECT_THAT(said(half + half), HasSubstr("of the window of 65536 are in use"));
  EXPECT_THAT(said(piece({PieceKind::kMoreRequest, 0, 0, 1, 9, 1}, "x")), HasSubstr("continues no request"));
  EXPECT_THAT(said(half + piece({PieceKind::kMoreRequest, 0, 0, 1, 30'000, 2}, "x")),
              HasSubstr("continues no"));
  EXPECT_THAT(said(half + piece({PieceKind::kMoreRequest, 0, 0, 1, 29'999, 1}, "x")),
              HasSubstr("continues no"));
  EXPECT_THAT(said(piece({PieceKind::kOffer, 0, 0, 1, 9, 9})), HasSubstr("fits into the window"));
  std::string offers;
  for (uint64_t id = 0; id < 20; ++id) offers += piece({PieceKind::kOffer, 0, 0, id, 9 << 20, 9 << 20});
  EXPECT_THAT(said(offers), HasSubstr("others are offered"));
  EXPECT_THAT(said(piece({PieceKind::kResponse, 0, 0, kFirst, 1, 0}, "x")), HasSubstr("no such call"));
  EXPECT_THAT(said(piece({PieceKind::kResponse, 0, 0, kFirst, 1, 0}, "x"), asks), HasSubstr("not been sent"));
  EXPECT_THAT(said(piece({PieceKind::kResponse, 0, 0, kFirst, 5, 0}, "x"), asked), HasSubstr("longer than"));
  EXPECT_THAT(said(piece({PieceKind::kMoreResponse, 0, 0, kFirst, 4, 1}, "x"), asked), HasSubstr("continue"));
  const std::string part = piece({PieceKind::kResponse, 0, 0, kFirst, 4, 0}, "x");
  EXPECT_THAT(said(part + part, asked), HasSubstr("a second response"));
  EXPECT_THAT(said(part + piece({PieceKind::kMoreResponse, 0, 0, kFirst, 4, 2}, "x"), asked),
              HasSubstr("does not continue"));
  EXPECT_THAT(said(piece({PieceKind::kFailure, 0, 0, kFirst, 1, 0}, "x"), asked), HasSubstr("are no status"));
  const std::string fine = encode_status(ok_status());
  EXPECT_THAT(
      said(piece({PieceKind::kFailure, 0, 0, kFirst, static_cast<uint32_t>(fine.size()), 0}, fine), asked),
      HasSubstr("without a cause"));
  EXPECT_THAT(said(piece({PieceKind::kGrant, 0, 0, kFirst, 0, 0}), asked), HasSubstr("nothing was offered"));
}

}  // namespace
}  // namespace swale::net::rpc_core_failures_test
