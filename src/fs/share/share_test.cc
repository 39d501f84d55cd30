// FileRoots and NodeShare: nodes that share a file, with messages in all orders and kills
// (testing/share_world.h), against what the table of visibility promises; and the parts alone.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <functional>

#include "fs/share/testing/share_world.h"

namespace swale::fs::share_test {
namespace {

using Canary = ShareWorldParams::Canary;

// How many times as many seeds a long run takes.
uint64_t seeds() {
  const char* const factor = ::getenv("SWALE_SIM_SEEDS");
  return factor == nullptr ? 1 : std::strtoull(factor, nullptr, 10);
}

void add(const ShareWorldOutcome& from, ShareWorldOutcome* to) {
  to->steps += from.steps, to->requests += from.requests, to->delivered += from.delivered;
  to->lost += from.lost, to->doubled += from.doubled, to->kills += from.kills;
  to->given_up += from.given_up, to->asked_again += from.asked_again;
  for (const auto& [what, count] : from.calls) to->calls[what] += count;
}

void print(const ShareWorldOutcome& all) {
  std::printf(
      "%lu steps, %lu messages (%lu lost, %lu doubled), %lu kills, %lu calls given up, %lu asked again\n",
      all.steps, all.delivered, all.lost, all.doubled, all.kills, all.given_up, all.asked_again);
  for (const auto& [what, count] : all.calls) std::printf("  %8lu %s\n", count, what.c_str());
}

TEST(FileShare, ReadsShowWhatTheTablePromisesWithLostLateAndDoubledMessagesAndKills) {
  ShareWorldOutcome all;
  for (uint64_t seed = 1; seed <= 400 * seeds(); ++seed) {
    ShareWorldParams params;
    params.seed = seed;
    params.nodes = 2 + static_cast<uint32_t>(seed % 3);
    if (seed % 4 == 0) params.kill_per_mille = 0;
    if (seed % 8 == 0) params.lose_per_mille = params.double_per_mille = 0;
    const ShareWorldOutcome outcome = ShareWorld(params).run();
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    add(outcome, &all);
  }
  print(all);
  for (const char* const call : {"append", "commit", "commit of nothing", "map", "map, too late", "read",
                                 "read by map", "read by map, to the end", "took maps back", "truncate"})
    EXPECT_GT(all.calls[call], 100u) << call;
  EXPECT_GT(all.kills, 100u);
  EXPECT_GT(all.asked_again, 10u);
  EXPECT_GT(all.given_up, 10u);
}

TEST(FileShare, AKillOfTheRootAtEachRequestBeforeAndAfterItsRecordLosesNoCommit) {
  uint64_t points = 0;
  for (uint64_t seed = 1; seed <= 6 * seeds(); ++seed) {
    ShareWorldParams params;
    params.seed = seed;
    params.operations = 60;
    params.kill_per_mille = params.lose_per_mille = params.double_per_mille = 0;
    for (params.kill_at = 1;; ++params.kill_at, ++points) {
      const ShareWorldOutcome outcome = ShareWorld(params).run();
      ASSERT_EQ(outcome.problem, "") << "seed " << seed << ", killed at point " << params.kill_at;
      if (outcome.kills == 0) break;
    }
  }
  std::printf("killed at %lu points, one a run\n", points);
  EXPECT_GT(points, 200u);
}

// In how many of 60 runs something is wrong.
uint64_t seen(Canary canary) {
  uint64_t runs = 0;
  std::string problem;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ShareWorldParams params;
    params.seed = seed;
    params.kill_per_mille = 10;
    params.double_per_mille = 200;
    params.canary = canary;
    const ShareWorldOutcome outcome = ShareWorld(params).run();
    if (outcome.problem.empty()) continue;
    ++runs;
    problem = outcome.problem;
  }
  std::printf("%lu of 60 runs, such as %s\n", runs, problem.c_str());
  return runs;
}

TEST(FileShare, CanaryACommitThatDoesNotWait) { EXPECT_GT(seen(Canary::kNoWait), 5u); }
TEST(FileShare, CanaryAReadThatDoesNotAsk) { EXPECT_GT(seen(Canary::kNoAsk), 5u); }
TEST(FileShare, CanaryARootThatObeysLateCopies) { EXPECT_GT(seen(Canary::kTwice), 2u); }
TEST(FileShare, CanaryANodeThatLooksForItsOwnBytesTooLate) { EXPECT_GT(seen(Canary::kOwnLate), 0u); }
TEST(FileShare, CanaryAServerThatForgetsWhatWasCommitted) { EXPECT_GT(seen(Canary::kNoLearn), 0u); }
TEST(FileShare, CanaryARootThatAnswersBeforeItsRecord) { EXPECT_GT(seen(Canary::kNoRecord), 2u); }

TEST(FileShare, CanaryAChangeThatTakesNoMapBack) { EXPECT_GT(seen(Canary::kNoTakeBack), 5u); }
TEST(FileShare, CanaryAMapThatIsPublishedTooLate) { EXPECT_GT(seen(Canary::kLateMap), 0u); }

TEST(FileShare, StridesOfACommitTakeAFewBytes) {
  ShareRequest request{.op = ShareOp::kCommit, .node = 3, .file = {1, 2}, .order = 9};
  for (uint64_t i = 0; i < 11'425; ++i) request.spans.push_back({i * 4 * 47'008, i * 4 * 47'008 + 47'008});
  request.spans.push_back({uint64_t{1} << 62, (uint64_t{1} << 62) + 5});
  const std::string bytes = encode(request);
  EXPECT_LT(bytes.size(), 100u);
  const auto again = decode_share_request(bytes);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, request);
}

TEST(FileShare, ForeignBytesAreRefusedOrAreARequest) {
  ShareRequest request{.op = ShareOp::kCommit, .node = 3, .file = {1, 2}, .order = 9};
  for (const uint64_t begin : {5, 100, 200, 300, 1000}) request.spans.push_back({begin, begin + 50});
  const std::string whole = encode(request);
  uint64_t refused = 0;
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(decode_share_request(Bytes(whole).substr(0, length)).ok()) << length;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    const auto decoded = decode_share_request(bytes);
    if (!decoded.ok()) {
      ++refused;
      continue;
    }
    uint64_t end = 0;
    for (const Span& span : decoded->spans) {
      ASSERT_LE(end, span.begin);
      ASSERT_LT(span.begin, span.end);
      end = span.end;
    }
    ASSERT_LE(end, meta::kOffsetEnd);
  }
  EXPECT_GT(refused, 20u);
  ShareAnswer answer{.size = 70, .backing_end = 9, .committed = 4, .offset = 1};
  answer.parts = {{{3, 9}, 1}, {{9, 70}, 2}};
  const auto same = decode_share_answer(encode(answer));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, answer);
  EXPECT_FALSE(decode_share_answer(Bytes(encode(answer)).substr(1)).ok());
  const size_t without = encode(answer).size();
  answer.holds = {{2, 7}, {3, 1}};
  const auto held = decode_share_answer(encode(answer));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(*held, answer);
  for (size_t length = without + 1; length < encode(answer).size(); ++length)
    EXPECT_FALSE(decode_share_answer(Bytes(encode(answer)).substr(0, length)).ok()) << length;
  const ShareRequest over{.op = ShareOp::kLetGo, .node = 3, .file = {1, 2}, .holds = {{2, 7}}};
  const auto told = decode_share_request(encode(over));
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(*told, over);
  const FetchRequest fetch{{1, 2}, {{3, 9}, {19, 25}, {35, 41}, {100, 100 + kMiB}}};
  const auto asked = decode_fetch_request(encode(fetch));
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(*asked, fetch);
  EXPECT_FALSE(decode_fetch_request(encode(FetchRequest{{1, 2}, {{0, kFetchBytesMax + 1}}})).ok());
  EXPECT_FALSE(decode_fetch_request(encode(FetchRequest{{1, 2}, {{0, meta::kOffsetEnd}}})).ok());
}

TEST(RangeMap, IsAnArrayOfBytes) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    RangeMap<int> map;
    int model[64] = {};
    for (int i = 0; i < 40; ++i) {
      const uint64_t begin = rng.below(64), end = begin + rng.below(64 - begin + 1);
      const int value = static_cast<int>(rng.below(4));
      if (value == 0)
        map.cut({begin, end});
      else
        map.put({begin, end}, value);
      std::fill(model + begin, model + end, value);
      uint64_t last_end = 0;
      int last = 0;
      int found[64] = {};
      map.visit({0, 64}, [&](const Span& span, int each) {
        EXPECT_LT(span.begin, span.end);
        EXPECT_TRUE(span.begin > last_end || each != last || last_end == 0) << "neighbours are one range";
        std::fill(found + span.begin, found + span.end, each);
        last_end = span.end, last = each;
      });
      EXPECT_TRUE(std::equal(model, model + 64, found));
      const uint64_t from = rng.below(64);
      map.visit({from, from + 1}, [&](const Span& span, int each) {
        EXPECT_EQ(span, (Span{from, from + 1}));
        EXPECT_EQ(each, model[from]);
      });
    }
  }
}

TEST(FileRoots, ReservedPlacesFollowEachOtherAndAFullFileIsAnError) {
  FileRoots roots;
  std::string record;
  const auto reserve = [&](NodeId node, uint64_t order, uint64_t bytes) {
    const auto answer = roots.handle({.op = ShareOp::kReserve,
                                      .node = node,
                                      .file = {1, 1},
                                      .order = order,
                                      .size = bytes,
                                      .backing = {.size = 100}},
                                     &record);
    return answer.ok() && answer->error == 0 ? answer->offset : 0;
  };
  EXPECT_EQ(reserve(1, 1, 10), 100u);
  EXPECT_FALSE(record.empty());
  EXPECT_EQ(reserve(2, 1, 10), 110u);
  EXPECT_EQ(reserve(1, 1, 10), 100u) << "the same request has the same answer";
  EXPECT_TRUE(record.empty());
  EXPECT_EQ(reserve(1, 2, meta::kOffsetEnd - 119), 0u) << "EFBIG";
  EXPECT_EQ(reserve(1, 3, meta::kOffsetEnd - 120), 120u);
}

// A truncate by another node gives a place anew once the bytes that were to stand there are committed.
TEST(FileRoots, APlaceWhoseBytesMayComeIsNotGivenAnewAfterATruncate) {
  for (const bool keeps : {true, false}) {
    for (const bool restarted : {false, true}) {
      FileRoots first({.keeps_places = keeps}), again({.keeps_places = keeps});
      FileRoots* roots = &first;
      std::vector<std::string> records;
      const auto ask = [&](ShareOp op, NodeId node, uint64_t order, uint64_t size) {
        std::string record;
        const auto answer = roots->handle(
            {.op = op, .node = node, .file = {1, 1}, .order = order, .size = size, .backing = {.size = 100}},
            &record);
        EXPECT_TRUE(answer.ok() && answer->error == 0);
        if (!record.empty()) records.push_back(record);
        return *answer;
      };
      EXPECT_EQ(ask(ShareOp::kReserve, 1, 1, 10).offset, 100u);
      const auto holds = ask(ShareOp::kLook, 2, 0, 0).holds;
      ASSERT_EQ(holds.size(), 1u);
      EXPECT_EQ(holds[0].node, 1u);
      EXPECT_TRUE(ask(ShareOp::kLook, 1, 0, 0).holds.empty()) << "it knows itself";
      if (restarted) {
        for (const std::string& each : records) ASSERT_TRUE(again.replay(each).ok());
        roots = &again;
      }
      ask(ShareOp::kTruncate, 2, 1, 50);
      EXPECT_EQ(ask(ShareOp::kReserve, 3, 1, 10).offset, keeps ? 110u : 50u);
      ask(ShareOp::kCommit, 1, 2, 0);
      ask(ShareOp::kCommit, 3, 2, 0);
      EXPECT_TRUE(ask(ShareOp::kLook, 2, 0, 0).holds.empty());
      ask(ShareOp::kTruncate, 2, 2, 50);
      EXPECT_EQ(ask(ShareOp::kReserve, 3, 3, 10).offset, 50u);
    }
  }
}

// Two nodes that overlap, a drain, and commits while it is under way; then a look, also after a restart.
std::string after_a_drain(const ShareRules& rules,
                          const std::function<void(FileRoots&, std::string*)>& meanwhile) {
  constexpr meta::FileId kOne{1, 1};
  FileRoots roots(rules), again;
  std::string record;
  const auto ask = [&](FileRoots& on, const ShareRequest& request) {
    const auto answer = on.handle(request, &record);
    EXPECT_TRUE(answer.ok() && answer->error == 0);
    EXPECT_TRUE(again.replay(record).ok());
    return answer.ok() ? *answer : ShareAnswer{};
  };
  const auto change = [&](ShareOp op, NodeId node, uint64_t order, std::vector<Span> spans,
                          uint64_t size = 0) {
    ask(roots,
        {.op = op, .node = node, .file = kOne, .order = order, .size = size, .spans = std::move(spans)});
  };
  change(ShareOp::kCommit, 1, 5, {{0, 10}});
  const auto drain = roots.begin_drain(kOne, {});
  EXPECT_TRUE(drain.ok() && drain->nodes == std::vector<NodeId>{1});
  EXPECT_EQ(roots.begin_drain(kOne, {}).status().code(), Code::kBusy);
  change(ShareOp::kFix, 1, 6, {}, drain->number);
  change(ShareOp::kFix, 2, 5, {{5, 15}}, drain->number);
  const auto plan = roots.plan_drain(kOne);
  EXPECT_TRUE(plan.ok() && !plan->nothing && plan->size == 15);
  EXPECT_EQ(plan->parts, (std::vector<SharePart>{{{0, 5}, 1}, {{5, 15}, 2}}));
  record.clear();
  meanwhile(roots, &record);
  EXPECT_TRUE(again.replay(record).ok());
  const auto late = roots.handle(
      {.op = ShareOp::kFix, .node = 3, .file = kOne, .order = 1, .size = drain->number}, &record);
  EXPECT_TRUE(late.ok() && late->error == ESTALE);
  EXPECT_TRUE(again.replay(record).ok());
  record.clear();
  EXPECT_TRUE(roots.drained(kOne, {7, 15, 1}, false, &record).ok());
  EXPECT_TRUE(again.replay(record).ok());
  roots.end_drain(kOne);
  std::string text[2];
  for (FileRoots* const each : {&roots, &again}) {
    const ShareAnswer answer = ask(*each, {.node = 1, .file = kOne, .span = {0, 100}});
    std::string& out = text[each == &again ? 1 : 0];
    out = fmt::format("size {}, inode {} to {}", answer.size, answer.backing_inode, answer.backing_end);
    for (const SharePart& part : answer.parts)
      out += fmt::format(", {} to {} at {}", part.span.begin, part.span.end, part.node);
  }
  EXPECT_EQ(text[0], text[1]);
  return text[0];
}

void commit_meanwhile(FileRoots& roots, std::string* record) {
  EXPECT_TRUE(
      roots
          .handle({.op = ShareOp::kCommit, .node = 1, .file = {1, 1}, .order = 9, .spans = {{12, 20}}},
                  record)
          .ok());
}

TEST(FileRoots, ADrainTakesWhatItsNodesHaveLastAndLeavesWhatIsCommittedMeanwhile) {
  EXPECT_EQ(after_a_drain({}, [](FileRoots&, std::string*) {}), "size 15, inode 7 to 15");
  EXPECT_EQ(after_a_drain({}, commit_meanwhile), "size 20, inode 7 to 15, 12 to 20 at 1");
  EXPECT_EQ(
      after_a_drain(
          {},
          [](FileRoots& roots, std::string* record) {
            EXPECT_TRUE(
                roots
                    .handle({.op = ShareOp::kTruncate, .node = 2, .file = {1, 1}, .order = 9, .size = 8},
                            record)
                    .ok());
          }),
      "size 8, inode 7 to 8");
}

TEST(FileRoots, CanaryADrainThatTakesWhatIsCommittedMeanwhile) {
  EXPECT_NE(after_a_drain({.keep_changed = false}, commit_meanwhile),
            "size 20, inode 7 to 15, 12 to 20 at 1");
}

}  // namespace
}  // namespace swale::fs::share_test
