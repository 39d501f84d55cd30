#include "net/meeting/exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "base/rng.h"

namespace swale::net::exchange_test {
namespace {

using testing::HasSubstr;

// All ranks of a job and the links between neighbours, as a lottery of deliveries.
class Ring {
 public:
  Ring(int32_t size, uint64_t seed) : rng_(seed) {
    for (Rank rank = 0; rank < size; ++rank) ranks_.push_back({ExchangeTree(rank, size)});
  }

  using Answer = ExchangeTree::Answer;

  static std::string gift(Rank rank, int round) { return fmt::format("{}/{}", rank, round); }
  // Rounds ask for all, for the least and for what is given, one after the other. To the last two a third of
  // the ranks gives nothing.
  static Answer wanted(int round) {
    return round % 3 == 0 ? Answer::kGiven : round % 3 == 1 ? Answer::kAll : Answer::kLeast;
  }
  static std::string given(Rank rank, int round) {
    return wanted(round) != Answer::kAll && rank % 3 == 0 ? "" : gift(rank, round);
  }
  ExchangeTree::Parts answer(int round) const {
    ExchangeTree::Parts all;
    for (Rank rank = 0; rank < static_cast<Rank>(ranks_.size()); ++rank) {
      std::string each = given(rank, round);
      if (wanted(round) == Answer::kAll || !each.empty()) all.emplace(rank, std::move(each));
    }
    if (wanted(round) != Answer::kLeast || all.empty()) return all;
    const auto least = std::min_element(all.begin(), all.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    return {*least};
  }

  // Ranks come to up to `rounds` rounds, each when the last is done. False when nothing can happen any more.
  bool turn(int rounds) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].dead && ranks_[i].idle && ranks_[i].began < rounds && ranks_[i].failure.ok())
        ready.push_back(i);
    }
    std::vector<std::pair<Rank, Rank>> full;
    for (const auto& [link, messages] : links_) {
      if (!messages.empty()) full.push_back(link);
    }
    if (ready.empty() && full.empty()) return false;
    const uint64_t pick = rng_.below(ready.size() + full.size());
    if (pick < ready.size()) {
      Place& place = ranks_[ready[pick]];
      place.idle = false;
      ++place.began;
      place.tree.begin(given(static_cast<Rank>(ready[pick]), place.began), wanted(place.began));
      settle(static_cast<Rank>(ready[pick]));
    } else {
      const auto link = full[pick - ready.size()];
      const std::string message = std::move(links_[link].front());
      links_[link].pop_front();
      Place& place = ranks_[static_cast<size_t>(link.second)];
      if (!place.dead) {
        place.tree.on_message(link.first, message);
        settle(link.second);
      }
    }
    return true;
  }

  void kill(Rank rank) {
    ranks_[static_cast<size_t>(rank)].dead = true;
    for (auto& [link, messages] : links_) {
      if (link.first == rank || link.second == rank) messages.clear();
    }
    const Status why = error(Code::kUnavailable, Scope::kPeer, "rank {} is dead", rank);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].dead) continue;
      ranks_[i].tree.on_gone(rank, why);
      settle(static_cast<Rank>(i));
    }
  }

  void lose_failures() { lose_failures_ = true; }

  struct Place {
    ExchangeTree tree;
    bool idle = true;
    bool dead = false;
    int began = 0;
    int done = 0;
    Status failure = {};
  };
  std::vector<Place>& ranks() { return ranks_; }

 private:
  void settle(Rank rank) {
    Place& place = ranks_[static_cast<size_t>(rank)];
    for (auto& [to, message] : place.tree.take_outgoing()) {
      if (lose_failures_ && message[4] == 3) continue;
      links_[{rank, to}].push_back(std::move(message));
    }
    auto answer = place.tree.take();
    if (!answer) return;
    place.idle = true;
    if (!answer->ok()) {
      place.failure = answer->status();
      return;
    }
    ++place.done;
    EXPECT_EQ(**answer, this->answer(place.done)) << "rank " << rank;
  }

  Rng rng_;
  bool lose_failures_ = false;
  std::vector<Place> ranks_;
  std::map<std::pair<Rank, Rank>, std::deque<std::string>> links_;
};

TEST(ExchangeTree, GivesEverybodyEverythingWhateverTheOrderOfDelivery) {
  int schedules = 0;
  for (const int32_t size : {2, 3, 9, 10, 80}) {
    for (uint64_t seed = 1; seed <= 20; ++seed, ++schedules) {
      Ring ring(size, seed);
      while (ring.turn(6)) {
      }
      for (const Ring::Place& place : ring.ranks()) EXPECT_EQ(place.done, 6);
    }
  }
  fmt::print("{} schedules\n", schedules);
}

// Every survivor that came to a round gets its answer or the reason, and nobody waits for ever.
int survivors_that_wait(int32_t size, uint64_t seed, int turns, bool lose_failures, int* told) {
  Ring ring(size, seed);
  if (lose_failures) ring.lose_failures();
  for (int i = 0; i < turns; ++i) ring.turn(3);
  const auto victim = static_cast<Rank>(Rng(seed).below(static_cast<uint64_t>(size)));
  ring.kill(victim);
  while (ring.turn(4)) {
  }
  int waiting = 0;
  for (const Ring::Place& place : ring.ranks()) {
    if (place.dead) continue;
    waiting += place.idle ? 0 : 1;
    if (place.failure.ok()) continue;
    ++*told;
    EXPECT_THAT(std::string(place.failure.message()), HasSubstr(fmt::format("rank {} is dead", victim)));
  }
  return waiting;
}

TEST(ExchangeTree, ARankThatDiesAtAnyMomentIsNamedToAll) {
  int deaths = 0, told = 0;
  for (const int32_t size : {2, 10, 30, 80}) {
    for (int turns = 0; turns < 8 * size; turns += 1 + size / 10, ++deaths)
      EXPECT_EQ(survivors_that_wait(size, static_cast<uint64_t>(turns) + 1, turns, false, &told), 0);
  }
  EXPECT_GT(told, deaths);
  fmt::print("{} deaths, {} survivors told\n", deaths, told);
}

TEST(ExchangeTree, CanaryLostNewsIsNoticed) {
  int told = 0, waiting = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) waiting += survivors_that_wait(80, seed, 10, true, &told);
  EXPECT_GT(waiting, 0);
}

// What a rank sends and gets for the least does not grow with the ranks.
TEST(ExchangeTree, TheLeastTakesEachRankAFewBytes) {
  size_t most[2] = {};
  for (const int32_t size : {73, 4'681}) {
    std::deque<ExchangeTree> ranks;
    std::deque<std::tuple<Rank, Rank, std::string>> wire;
    std::vector<size_t> bytes(static_cast<size_t>(size));
    const auto settle = [&](Rank rank) {
      for (auto& [to, message] : ranks[static_cast<size_t>(rank)].take_outgoing()) {
        bytes[static_cast<size_t>(rank)] += message.size();
        bytes[static_cast<size_t>(to)] += message.size();
        wire.emplace_back(rank, to, std::move(message));
      }
    };
    for (Rank rank = 0; rank < size; ++rank) {
      ranks.emplace_back(rank, size).begin("a word", ExchangeTree::Answer::kLeast);
      settle(rank);
    }
    for (; !wire.empty(); wire.pop_front()) {
      const auto& [from, to, message] = wire.front();
      ranks[static_cast<size_t>(to)].on_message(from, message);
      settle(to);
    }
    for (ExchangeTree& each : ranks) EXPECT_TRUE(each.take()->ok());
    most[size > 100 ? 1 : 0] = *std::max_element(bytes.begin(), bytes.end());
  }
  EXPECT_EQ(most[0], most[1]);
  EXPECT_LT(most[1], 18 * 30u);
}

TEST(ExchangeTree, RanksThatWantDifferentAnswersAreTold) {
  ExchangeTree parent(0, 2), child(1, 2);
  child.begin("mine", ExchangeTree::Answer::kLeast);
  parent.begin("mine", ExchangeTree::Answer::kAll);
  for (const auto& [to, message] : child.take_outgoing()) parent.on_message(1, message);
  const auto answer = parent.take();
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(std::string(answer->status().message()), HasSubstr("rank 1 came to round 1"));
}

TEST(ExchangeTree, AnyBytesAreRefusedWithTheSender) {
  Rng rng(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    ExchangeTree tree(1, 20);
    tree.begin("mine", static_cast<ExchangeTree::Answer>(i % 3));
    std::string bytes;
    bytes.push_back(static_cast<char>(rng.below(3)));
    bytes.append(3, '\0');
    bytes.push_back(static_cast<char>(rng.below(9)));
    for (uint64_t more = rng.below(12); more > 0; --more) bytes.push_back(static_cast<char>(rng.below(12)));
    tree.on_message(9, bytes);
    const auto answer = tree.take();
    refused += answer && answer->status().code() == Code::kCorruption ? 1 : 0;
  }
  EXPECT_GT(refused, 15'000);
}

}  // namespace
}  // namespace swale::net::exchange_test
