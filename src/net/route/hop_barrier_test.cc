// The barriers between the hops: whole jobs of them, whose messages are delivered at random.
#include "net/route/hop_barrier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::net::hop_barrier_test {
namespace {

class Job {
 public:
  Job(const std::vector<int32_t>& ranks_per_node, uint64_t seed)
      : map_(*NodeMap::in_blocks(ranks_per_node)), rng_(seed), passed_(static_cast<size_t>(map_.ranks())) {
    for (Rank rank = 0; rank < map_.ranks(); ++rank) members_.emplace_back(&map_, rank);
    sent_.resize(members_.size());
  }

  void come(Rank rank) {
    const int hop = static_cast<int>(passed_[static_cast<size_t>(rank)] % 3) + 1;
    members_[static_cast<size_t>(rank)].come(hop);
    take(rank);
  }
  // One message, any of those under way.
  bool deliver() {
    if (wire_.empty()) return false;
    std::swap(wire_[rng_.below(wire_.size())], wire_.back());
    const auto [from, to, message] = wire_.back();
    wire_.pop_back();
    const Status status = members_[static_cast<size_t>(to)].on_message(from, message);
    EXPECT_TRUE(status.ok()) << status.to_string();
    take(to);
    return true;
  }
  uint64_t passed(Rank rank) const { return passed_[static_cast<size_t>(rank)]; }
  const NodeMap& map() const { return map_; }
  HopBarrier& member(Rank rank) { return members_[static_cast<size_t>(rank)]; }
  uint64_t most_sent() const { return *std::max_element(sent_.begin(), sent_.end()); }
  uint64_t sent() const {
    uint64_t sum = 0;
    for (const uint64_t each : sent_) sum += each;
    return sum;
  }
  Rng& rng() { return rng_; }

 private:
  void take(Rank rank) {
    HopBarrier& member = members_[static_cast<size_t>(rank)];
    for (auto& [to, message] : member.outgoing()) wire_.emplace_back(rank, to, std::move(message));
    sent_[static_cast<size_t>(rank)] += member.outgoing().size();
    member.outgoing().clear();
    if (member.take_release()) ++passed_[static_cast<size_t>(rank)];
  }

  const NodeMap map_;
  Rng rng_;
  std::vector<HopBarrier> members_;
  std::vector<std::tuple<Rank, Rank, std::string>> wire_;
  std::vector<uint64_t> passed_;
  std::vector<uint64_t> sent_;
};

TEST(HopBarrier, NobodyPassesBeforeItsGroupHasCome) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const std::vector<int32_t>& nodes :
         {std::vector<int32_t>{1, 1}, {2, 2}, {5}, {1, 3, 2}, {7, 1, 4, 4, 1, 2}}) {
      Job job(nodes, seed);
      const Rank ranks = job.map().ranks();
      std::vector<uint64_t> came(static_cast<size_t>(ranks));
      const uint64_t arrivals = 3 * 4;
      for (bool over = false; !over;) {
        const auto rank = static_cast<Rank>(job.rng().below(static_cast<uint64_t>(ranks)));
        uint64_t& mine = came[static_cast<size_t>(rank)];
        if (job.rng().chance(1, 2) && mine == job.passed(rank) && mine < arrivals) {
          ++mine;
          job.come(rank);
        } else {
          job.deliver();
        }
        over = true;
        for (Rank each = 0; each < ranks; ++each) {
          over = over && job.passed(each) == arrivals;
          for (Rank other = 0; other < ranks; ++other) {
            const bool together = job.map().seat(each).node == job.map().seat(other).node;
            const uint64_t passed = job.passed(each);
            const uint64_t of_all = (passed + 1) / 3;  // the second of three points is everybody's
            const uint64_t needed = together ? passed : of_all == 0 ? 0 : 3 * of_all - 1;
            ASSERT_GE(came[static_cast<size_t>(other)], needed)
                << "rank " << each << " passed without " << other;
          }
        }
      }
    }
  }
}

// The figures of the header's comment, at the size that they are for.
TEST(HopBarrier, AnEpochOf131072RanksTakesAFewMessagesARank) {
  Job job(std::vector<int32_t>(4096, 32), 1);
  for (uint64_t arrival = 0; arrival < 3; ++arrival) {
    for (Rank rank = 0; rank < job.map().ranks(); ++rank) job.come(rank);
    while (job.deliver()) {
    }
    ASSERT_EQ(job.passed(131'071), arrival + 1);
  }
  EXPECT_EQ(job.most_sent(), 13u);
  EXPECT_LE(job.sent(), 6u * 131'072);
}

TEST(HopBarrier, WhoeverIsMissingIsNamed) {
  Job job({2, 2}, 1);
  job.come(0);
  EXPECT_EQ(job.member(0).missing(), 1);
  job.come(1);
  while (job.deliver()) {
  }
  for (const Rank rank : {0, 1}) job.come(rank);  // its node waits for the other one
  while (job.deliver()) {
  }
  EXPECT_EQ(job.member(0).missing(), 2);
  EXPECT_EQ(job.member(1).missing(), 0);
}

// Canary: what must not come is refused.
TEST(HopBarrier, MessagesThatNobodyMaySendAreErrors) {
  Job job({2, 2}, 1);
  const auto message = [](uint8_t tree, uint8_t way, uint64_t round) {
    std::string bytes;
    append_u8(&bytes, tree);
    append_u8(&bytes, way);
    append_varint(&bytes, round);
    return bytes;
  };
  EXPECT_EQ(job.member(0).on_message(1, message(0, 1, 1)).code(), Code::kCorruption) << "another round";
  EXPECT_EQ(job.member(0).on_message(3, message(0, 1, 0)).code(), Code::kCorruption) << "another node";
  EXPECT_EQ(job.member(0).on_message(3, message(1, 1, 0)).code(), Code::kCorruption) << "no leader";
  EXPECT_EQ(job.member(1).on_message(0, message(0, 2, 0)).code(), Code::kCorruption) << "not gathered";
  EXPECT_EQ(job.member(0).on_message(1, message(0, 3, 0)).code(), Code::kCorruption);
  EXPECT_EQ(job.member(0).on_message(1, "").code(), Code::kCorruption);
  EXPECT_TRUE(job.member(0).on_message(1, message(0, 1, 0)).ok());
  EXPECT_EQ(job.member(0).on_message(1, message(0, 1, 0)).code(), Code::kCorruption) << "twice";
}

}  // namespace
}  // namespace swale::net::hop_barrier_test
