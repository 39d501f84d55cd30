#include "imd/write/parting.h"

#include <gtest/gtest.h>

#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace swale::imd::parting_test {
namespace {

using Words = Parting::Words;

// All ranks' machines. Messages of one rank to another keep their order, all else is by lot.
class Job {
 public:
  Job(int32_t size, Words words, uint64_t seed) : rng_(seed), sent(static_cast<size_t>(size)) {
    for (net::Rank rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Parting>(rank, size, words));
  }
  Parting& operator[](net::Rank rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }

  void begin(net::Rank rank) {
    (*this)[rank].begin({});
    take(rank);
  }
  bool deliver() {
    if (wire_.empty()) return false;
    auto pair = std::next(wire_.begin(), static_cast<int64_t>(rng_.below(wire_.size())));
    const auto [from, to] = pair->first;
    const CloseMessage message = pair->second.front();
    pair->second.pop_front();
    if (pair->second.empty()) wire_.erase(pair);
    const Status status = (*this)[to].on_message(from, message);
    EXPECT_TRUE(status.ok()) << status.to_string();
    take(to);
    return true;
  }
  int32_t over() const {
    int32_t count = 0;
    for (const auto& each : ranks_) count += each->over() ? 1 : 0;
    return count;
  }

 private:
  void take(net::Rank rank) {
    for (const auto& [to, bytes] : (*this)[rank].outgoing()) {
      wire_[{rank, to}].push_back(std::get<CloseMessage>(*decode_message(bytes, rank)));
      ++sent[static_cast<size_t>(rank)];
    }
    (*this)[rank].outgoing().clear();
  }

  Rng rng_;
  std::vector<std::unique_ptr<Parting>> ranks_;
  std::map<std::pair<net::Rank, net::Rank>, std::deque<CloseMessage>> wire_;

 public:
  std::vector<uint64_t> sent;
};

TEST(Parting, IsOverEverywhereWhenTheLastRankHasComeAndNotBefore) {
  for (const Words words : {Words::kEachToEach, Words::kByTree}) {
    for (const int32_t size : {1, 2, 3, 4, 5, 13, 14, 40, 100}) {
      for (net::Rank last = 0; last < size; last += 1 + size / 7) {
        Job job(size, words, static_cast<uint64_t>(size + last));
        for (net::Rank rank = 0; rank < size; ++rank) {
          if (rank != last) job.begin(rank);
          while (job.deliver()) {
          }
        }
        EXPECT_EQ(job.over(), 0) << size << " ranks without " << last;
        int awaiting = 0;
        for (net::Rank rank = 0; rank < size; ++rank) {
          if (!job[rank].awaits_ranks()) continue;
          ++awaiting;
          EXPECT_NE(job[rank].waiting_for().find(fmt::format("rank {} to close", last)), std::string::npos)
              << job[rank].waiting_for();
        }
        if (size > 1) {
          EXPECT_GE(awaiting, 1) << "nobody knows that rank " << last << " is missing";
        }
        job.begin(last);
        while (job.deliver()) {
        }
        EXPECT_EQ(job.over(), size) << size << " ranks, the last was " << last;
        if (words == Words::kByTree) {
          for (const uint64_t sent : job.sent) EXPECT_LE(sent, 8u);
        }
      }
    }
  }
}

TEST(Parting, WhatNobodyMaySayIsRefused) {
  Parting each(0, 3, Words::kEachToEach);
  EXPECT_TRUE(each.on_message(1, {}).ok());
  EXPECT_EQ(each.on_message(1, {}).code(), Code::kCorruption) << "twice";
  EXPECT_EQ(each.on_message(2, {{}, CloseWord::kAllBelow}).code(), Code::kCorruption) << "by a tree";
  Parting tree(1, 20, Words::kByTree);
  EXPECT_EQ(tree.on_message(2, {}).code(), Code::kCorruption) << "no neighbour";
  EXPECT_EQ(tree.on_message(0, {{}, CloseWord::kEverybody}).code(), Code::kCorruption) << "too early";
  EXPECT_EQ(tree.on_message(4, {{}, CloseWord::kAllBelow}).code(), Code::kCorruption) << "has not come";
  EXPECT_TRUE(tree.on_message(4, {}).ok());
  EXPECT_TRUE(tree.on_message(4, {{}, CloseWord::kAllBelow}).ok());
  EXPECT_EQ(tree.on_message(4, {{}, CloseWord::kAllBelow}).code(), Code::kCorruption) << "twice";
}

}  // namespace
}  // namespace swale::imd::parting_test
