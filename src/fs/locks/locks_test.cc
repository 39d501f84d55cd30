// LockRoot and LockNode: nodes whose programs lock, with messages in all orders and kills
// (testing/lock_world.h), and the parts alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>

#include "fs/locks/testing/lock_world.h"

namespace swale::fs::locks_test {
namespace {

using Canary = LockWorldParams::Canary;

constexpr meta::FileId kFile{0, 7};
constexpr LockType kNone = LockType::kNone, kRead = LockType::kRead, kWrite = LockType::kWrite;

uint64_t seeds() {
  const char* const factor = ::getenv("SWALE_SIM_SEEDS");
  return factor == nullptr ? 1 : std::strtoull(factor, nullptr, 10);
}

TEST(Locks, ExcludeEachOtherWithLostLateAndDoubledMessagesAndKills) {
  LockWorldOutcome all;
  for (uint64_t seed = 1; seed <= 600 * seeds(); ++seed) {
    LockWorldParams params;
    params.seed = seed;
    params.nodes = 2 + static_cast<uint32_t>(seed % 3);
    params.ranges_alone = seed % 2 == 0;
    if (seed % 4 == 0) params.kill_per_mille = 0;
    if (seed % 8 == 0) params.lose_per_mille = params.double_per_mille = params.give_up_per_mille = 0;
    const LockWorldOutcome outcome = LockWorld(params).run();
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    all.steps += outcome.steps, all.messages += outcome.messages, all.lost += outcome.lost;
    all.doubled += outcome.doubled, all.given_up += outcome.given_up, all.kills += outcome.kills;
    all.counted += outcome.counted;
    for (const auto& [what, count] : outcome.answers) all.answers[what] += count;
  }
  std::printf("%lu steps, %lu messages (%lu lost, %lu doubled), %lu given up, %lu kills, %lu counted\n",
              all.steps, all.messages, all.lost, all.doubled, all.given_up, all.kills, all.counted);
  for (const auto& [what, count] : all.answers) std::printf("  %8lu %s\n", count, what.c_str());
  for (const int error : {EAGAIN, EDEADLK, EINTR, EIO})
    EXPECT_GT(all.answers[std::strerror(error)], 100u) << std::strerror(error);
  EXPECT_GT(all.answers["done"], 10'000u);
  EXPECT_GT(all.kills, 100u);
  EXPECT_GT(all.counted, 1'000u);
}

// In how many of 60 runs something is wrong.
uint64_t seen(Canary canary) {
  uint64_t runs = 0;
  std::string problem;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    LockWorldParams params;
    params.seed = seed;
    params.kill_per_mille = canary == Canary::kDeadStays ? 10 : 1;
    params.double_per_mille = params.give_up_per_mille = 200;
    params.interrupts = canary != Canary::kNoDeadlock;
    params.ranges_alone = true;
    params.canary = canary;
    const LockWorldOutcome outcome = LockWorld(params).run();
    if (outcome.problem.empty()) continue;
    ++runs;
    problem = outcome.problem;
  }
  std::printf("%lu of 60 runs, such as %s\n", runs, problem.c_str());
  return runs;
}

TEST(Locks, CanaryAnUnlockThatDoesNotCommit) { EXPECT_GT(seen(Canary::kNoCommit), 5u); }
TEST(Locks, CanaryALateCopyThatIsObeyed) { EXPECT_GT(seen(Canary::kTwice), 5u); }
TEST(Locks, CanaryADeadNodeWhoseLocksStay) { EXPECT_GT(seen(Canary::kDeadStays), 5u); }
TEST(Locks, CanaryAGivenUpRequestThatIsNotUndone) { EXPECT_GT(seen(Canary::kNoVoid), 0u); }
TEST(Locks, CanaryACycleThatWaits) { EXPECT_GT(seen(Canary::kNoDeadlock), 5u); }

// ---- the root alone

struct Root {
  LockRoot root;
  uint64_t number = 0;

  LockOutcome set(NodeId node, uint64_t owner, LockType type, uint64_t begin, uint64_t end,
                  bool waits = false, LockKind kind = LockKind::kRange) {
    LockMessage message{.number = ++number, .file = kFile, .waits = waits};
    message.wanted = {node, {kind, type, begin, end, owner, 1}};
    const auto answer = root.handle(message);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? answer->outcome : LockOutcome::kLate;
  }
  LockOutcome flock(NodeId node, LockType type, bool waits = false) {
    return set(node, 1, type, 0, kLockEnd, waits, LockKind::kWhole);
  }
  std::vector<uint64_t> granted() {
    std::vector<uint64_t> numbers;
    for (const auto& each : root.take_grants()) numbers.push_back(each.number);
    return numbers;
  }
};

TEST(LockRoot, GrantsInTheOrderOfTheRequestsWhatNothingIsInTheWayOf) {
  Root r;
  EXPECT_EQ(r.set(1, 1, kWrite, 0, 10), LockOutcome::kDone);
  EXPECT_EQ(r.set(2, 1, kRead, 0, 5, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(3, 1, kWrite, 0, 5, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(4, 1, kRead, 5, 10, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(1, 1, kRead, 0, 10), LockOutcome::kDone) << "made weaker";
  EXPECT_THAT(r.granted(), testing::ElementsAre(2, 4));
  EXPECT_EQ(r.set(1, 1, kNone, 0, kLockEnd), LockOutcome::kDone);
  EXPECT_EQ(r.set(2, 1, kNone, 0, kLockEnd), LockOutcome::kDone);
  EXPECT_THAT(r.granted(), testing::ElementsAre(3));
}

TEST(LockRoot, ACycleOfThreeIsADeadlockAndAChainIsNot) {
  Root r;
  for (NodeId node = 1; node <= 3; ++node)
    EXPECT_EQ(r.set(node, 1, kWrite, node, node + 1), LockOutcome::kDone);
  EXPECT_EQ(r.set(1, 1, kWrite, 2, 3, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(2, 1, kWrite, 3, 4, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(3, 1, kWrite, 1, 2, true), LockOutcome::kDeadlock);
  EXPECT_EQ(r.set(3, 1, kWrite, 1, 2, false), LockOutcome::kTaken);
  EXPECT_EQ(r.set(3, 1, kNone, 0, kLockEnd), LockOutcome::kDone);
  EXPECT_EQ(r.granted().size(), 1u);
}

TEST(LockRoot, FlockIsConvertedInTwoSteps) {
  Root r;
  EXPECT_EQ(r.flock(1, kRead), LockOutcome::kDone);
  EXPECT_EQ(r.flock(2, kRead), LockOutcome::kDone);
  EXPECT_EQ(r.flock(1, kWrite), LockOutcome::kTaken);
  EXPECT_EQ(r.flock(2, kWrite), LockOutcome::kDone) << "the refused one has lost its lock, as in Linux";
  EXPECT_EQ(r.flock(1, kRead, true), LockOutcome::kWaits);
  EXPECT_EQ(r.flock(2, kRead), LockOutcome::kDone);
  EXPECT_EQ(r.granted().size(), 1u);
}

TEST(LockRoot, LocksAndWaitsOfANodeThatIsGoneEndAndItGetsNone) {
  Root r;
  EXPECT_EQ(r.set(1, 1, kWrite, 0, 10), LockOutcome::kDone);
  EXPECT_EQ(r.set(2, 1, kWrite, 0, 10, true), LockOutcome::kWaits);
  EXPECT_EQ(r.set(3, 1, kWrite, 0, 10, true), LockOutcome::kWaits);
  EXPECT_THAT(r.root.take_suspects(), testing::ElementsAre(1));
  r.root.forget_node(2);
  r.root.forget_node(1);
  EXPECT_THAT(r.granted(), testing::ElementsAre(3));
  LockMessage message{.number = 99, .file = kFile};
  message.wanted = {1, {.type = kWrite, .begin = 50, .end = 60}};
  EXPECT_EQ(r.root.handle(message).status().code(), Code::kUnavailable);
}

TEST(LockRoot, RefusesMoreRangesThanItsLimit) {
  Root r;
  for (uint64_t i = 0; i < kFileLocksMax; i += 4096) {  // one owner a batch: the count is of all
    for (uint64_t j = i; j < i + 4096; ++j) r.set(1, i, kRead, 2 * j, 2 * j + 1);
  }
  EXPECT_EQ(r.set(2, 1, kRead, 0, 1), LockOutcome::kTooMany);
}

// ---- a node alone

TEST(LockNode, WhatARootThatIsGoneHadIsEio) {
  LockNode node(1);
  const FileLock lock{.type = kWrite, .owner = 5};
  const uint64_t waits = node.begin(), asks = node.begin();
  const LockMessage first = node.set(waits, 0, kFile, 9, lock, true);
  node.answered(0, first, {LockOutcome::kWaits});
  EXPECT_TRUE(node.take_told().empty());
  const LockMessage second = node.set(asks, 0, kFile, 9, lock, false);
  node.failed(0, second, true);
  const auto told = node.take_told();
  ASSERT_EQ(told.size(), 2u);
  for (const LockNode::Told& each : told) EXPECT_EQ(each.error, EIO);
  EXPECT_TRUE(node.idle());
}

TEST(LockNode, OneThatIsInterruptedBeforeItWaitsIsCancelled) {
  LockNode node(1);
  const uint64_t request = node.begin();
  node.interrupt(request);
  const LockMessage message = node.set(request, 0, kFile, 9, {.type = kWrite, .owner = 5}, true);
  EXPECT_FALSE(node.cancels());
  node.answered(0, message, {LockOutcome::kWaits});
  EXPECT_TRUE(node.cancels());
  const auto due = node.due(false, 0);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].message.op, LockOp::kCancel);
  EXPECT_EQ(due[0].message.target, message.number);
  node.granted(0, message.number);
  EXPECT_TRUE(node.take_told().empty()) << "the answer to the cancellation says what has become of it";
  node.answered(0, due[0].message, {LockOutcome::kDone});
  const auto told = node.take_told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().error, 0);
}

// A cancellation that was lost before anybody knew is sent again, as the same one.
TEST(LockNode, ACancellationWithoutAnAnswerIsDueAgain) {
  LockNode node(1);
  const uint64_t request = node.begin();
  const LockMessage message = node.set(request, 0, kFile, 9, {.type = kWrite, .owner = 5}, true);
  node.answered(0, message, {LockOutcome::kWaits});
  node.interrupt(request, ENOTCONN);
  const auto first = node.due(false, 0);
  EXPECT_TRUE(node.due(false, 0).empty());
  const auto again = node.due(true, 9);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].message, first[0].message);
  node.answered(0, again[0].message, {LockOutcome::kCancelled});
  node.answered(0, first[0].message, {LockOutcome::kCancelled});
  const auto told = node.take_told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().error, ENOTCONN);
  EXPECT_TRUE(node.idle());
}

// Each length and each bit: an error, or a message whose numbers can be used.
template <class Decode>
void forge(const std::string& whole, const Decode& decode) {
  uint64_t refused = 0;
  EXPECT_TRUE(decode(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(decode(whole.substr(0, length)).ok());
  EXPECT_FALSE(decode(whole + "x").ok());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    const auto decoded = decode(bytes);
    refused += !decoded.ok();
    if (decoded.ok()) {
      EXPECT_EQ(encode(*decoded), bytes);
    }
  }
  EXPECT_GT(refused, 20u);
}

TEST(LockMessages, ForgedOnesAreRefusedOrAreWhatTheySay) {
  LockMessage message{.number = 9, .floor = 8, .target = 3, .file = {1, 2}, .waits = true};
  message.wanted = {4, {LockKind::kRange, kWrite, 10, 20, 77, 5}};
  const auto same = decode_lock_message(encode(message));
  EXPECT_TRUE(same.ok() && *same == message);
  forge(encode(message), decode_lock_message);
  forge(encode(LockAnswer{LockOutcome::kTaken, message.wanted}), decode_lock_answer);
}

}  // namespace
}  // namespace swale::fs::locks_test
