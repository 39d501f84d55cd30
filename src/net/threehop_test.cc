// The three-hop route as a whole job on one thread: random delays of frames, completions in any order, sinks that refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>

#include "base/coding.h"
#include "base/rng.h"
#include "net/threehop_router.h"

namespace swale::net {
namespace {

constexpr uint64_t kSecret = 99;
constexpr uint32_t kChannel = 5;

NodeMap blocks(const std::vector<int32_t>& ranks_per_node) {
  auto map = NodeMap::in_blocks(ranks_per_node);
  EXPECT_TRUE(map.ok()) << map.status().to_string();
  return std::move(*map);
}

TEST(NodeMap, FindsSeatsWhateverThePlacement) {
  const NodeMap in_blocks = blocks({3, 1, 2});
  EXPECT_EQ(in_blocks.nodes(), 3);
  EXPECT_EQ(in_blocks.seat(3).node, 1);
  EXPECT_EQ(in_blocks.seat(5).local, 1);
  const std::vector<int32_t> cyclic = {0, 1, 2, 0, 1, 0};
  const auto map = NodeMap::of_ranks(cyclic);
  ASSERT_TRUE(map.ok());
  for (Rank rank = 0; rank < 6; ++rank) {
    const Seat seat = map->seat(rank);
    EXPECT_EQ(seat.node, cyclic[static_cast<size_t>(rank)]);
    EXPECT_EQ(map->rank_at(seat.node, seat.local), rank);
  }
  EXPECT_EQ(map->rank_at(0, 2), 5);
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{}, {0, 2}, {0, -1}, {3}}) {
    EXPECT_EQ(NodeMap::of_ranks(wrong).status().code(), Code::kInvalidArgument);
  }
  EXPECT_FALSE(NodeMap::in_blocks(std::vector<int32_t>{2, 0}).ok());
}

TEST(NodeMap, RemoteNodesAreSpreadOverLocalRanks) {
  const NodeMap map = blocks(std::vector<int32_t>(4096, 32));
  std::map<Rank, int> remote_links;
  for (int32_t other = 0; other < 4096; ++other) {
    if (other == 1234) continue;
    const Rank here = map.representative(1234, other);
    EXPECT_EQ(map.seat(here).node, 1234);
    ++remote_links[here];
  }
  EXPECT_EQ(remote_links.size(), 32u);
  for (const auto& [rank, links] : remote_links) EXPECT_LE(links, 128) << rank;
  EXPECT_LE(map.memory_bytes(), 17'000u);
}

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
    EXPECT_LE((*router)->peers(), 159u);
    RecordProperty("buffer_bytes", static_cast<int>((*router)->buffer_bytes()));
    RecordProperty("state_bytes", static_cast<int>((*router)->state_bytes()));
  }
}

TEST(ThreeHop, HopsWithinABudgetAreTheSameForTheWholeJobAndNeverRefused) {
  const auto total = [](const NodeMap& map, uint64_t budget) {
    ThreeHopRouter::Params params;
    params.nodes = std::make_shared<const NodeMap>(map);
    params.hops = ThreeHopRouter::hops_within(map, budget);
    uint64_t most = 0;
    for (Rank rank = 0; rank < map.ranks(); rank += 1 + map.ranks() / 7) {
      params.rank = rank;
      const auto router = ThreeHopRouter::create(params, nullptr);
      EXPECT_TRUE(router.ok());
      most = std::max(most, (*router)->buffer_bytes());
    }
    return most;
  };
  EXPECT_LE(total(blocks({4, 4}), 2 * kMiB), 2 * kMiB);
  EXPECT_LE(total(blocks(std::vector<int32_t>(512, 64)), 4 * kMiB), 4 * kMiB);
  EXPECT_LE(total(blocks(std::vector<int32_t>(8192, 16)), 8 * kMiB), 8 * kMiB);
  EXPECT_GT(total(blocks({1, 1, 1, 1}), kMiB), kMiB / 2) << "what is left goes to windows";
  EXPECT_GT(total(blocks(std::vector<int32_t>(100, 1)), 1), 0u)
      << "not even the least fits: it is taken all the same";
}

struct Case {
  std::vector<int32_t> ranks_per_node;
  bool cyclic = false;
  uint32_t epochs = 3;
  uint64_t messages_per_rank = 300;  // in each epoch, to random ranks
  size_t message_bytes_max = 60;
  size_t frame_bytes = kHopFrameBytesMin;
  uint16_t window = 1;
  uint32_t shared_frames = 0;
  Rank stuck = -1;  // takes nothing until everybody else has nothing to do
  bool stuck_for_good = false;
  uint64_t seed = 1;
  // What the network does wrong, once: canaries.
  enum class Wrong {
    kNothing,
    kDropsAFrame,
    kDoublesAFrame,
    kSwapsFrames,
    kAltersAnEnd
  } wrong = Wrong::kNothing;
};

std::shared_ptr<const NodeMap> map_of(const Case& what) {
  if (!what.cyclic) return std::make_shared<const NodeMap>(blocks(what.ranks_per_node));
  std::vector<int32_t> left = what.ranks_per_node, node_of;
  for (bool any = true; any;) {
    any = false;
    for (size_t node = 0; node < left.size(); ++node) {
      if (left[node] == 0) continue;
      --left[node];
      node_of.push_back(static_cast<int32_t>(node));
      any = true;
    }
  }
  auto map = NodeMap::of_ranks(node_of);
  EXPECT_TRUE(map.ok());
  return std::make_shared<const NodeMap>(std::move(*map));
}

// A rank of the job: sends numbered messages, and checks what it is given.
class Member : public MessageSink {
 public:
  Member(const Case& what, Rank rank, std::shared_ptr<const NodeMap> map, Rng* rng)
      : what_(what),
        rank_(rank),
        ranks_(map->ranks()),
        rng_(rng),
        next_out_(static_cast<size_t>(ranks_)),
        next_in_(static_cast<size_t>(ranks_)) {
    ThreeHopRouter::Params params;
    params.rank = rank;
    params.nodes = std::move(map);
    params.channel = kChannel;
    params.secret = kSecret;
    for (auto& hop : params.hops) hop = {what.frame_bytes, what.shared_frames, what.window};
    auto made = ThreeHopRouter::create(params, this);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    router = std::move(*made);
  }

  bool deliver(Rank source, Bytes message) override {
    if (refuses || rng_->chance(1, 50)) {
      refused = true;
      return false;
    }
    EXPECT_LT(source, ranks_);
    Decoder in(message);
    const uint64_t number = in.u64();
    const uint32_t epoch = in.u32();
    const auto to = static_cast<Rank>(in.u32());
    wrong += number != next_in_[static_cast<size_t>(source)]++ ? 1 : 0;
    wrong += epoch != epochs_complete || to != rank_ ? 1 : 0;
    for (const char byte : in.rest())
      wrong += byte != static_cast<char>(number + static_cast<uint64_t>(source)) ? 1 : 0;
    ++taken;
    return true;
  }
  void epoch_complete(uint32_t epoch) override {
    EXPECT_EQ(epoch, epochs_complete);
    ++epochs_complete;
    taken_at_end.push_back(taken);
  }

  // Sends the next message, or ends the epoch. False: it had to wait, or has nothing more to say.
  bool speak(std::vector<std::vector<uint64_t>>* sent_to) {
    if (epoch_ == what_.epochs) return false;
    if (said_ == what_.messages_per_rank * static_cast<uint64_t>(rank_ % 3 + 1) / 2) {
      if (router->ending()) return false;
      router->end_epoch();
      ++epoch_;
      said_ = 0;
      to_ = -1;
      return true;
    }
    if (to_ < 0) to_ = static_cast<Rank>(rng_->below(static_cast<uint64_t>(ranks_)));
    std::string message;
    const uint64_t number = next_out_[static_cast<size_t>(to_)];
    append_u64(&message, number);
    append_u32(&message, epoch_);
    append_u32(&message, static_cast<uint32_t>(to_));
    message.append(number % (what_.message_bytes_max - 15),
                   static_cast<char>(number + static_cast<uint64_t>(rank_)));
    if (!router->send(to_, message)) return false;
    ++next_out_[static_cast<size_t>(to_)];
    ++said_;
    ++(*sent_to)[epoch_][static_cast<size_t>(to_)];
    to_ = -1;
    return true;
  }
  bool has_said_all() const { return epoch_ == what_.epochs; }

  std::unique_ptr<ThreeHopRouter> router;
  bool refuses = false;
  bool refused = false;
  uint32_t epochs_complete = 0;
  uint64_t taken = 0;
  uint64_t wrong = 0;
  std::vector<uint64_t> taken_at_end;

 private:
  const Case& what_;
  Rank rank_;
  Rank ranks_;
  Rng* rng_;
  std::vector<uint64_t> next_out_, next_in_;
  uint32_t epoch_ = 0;
  uint64_t said_ = 0;
  Rank to_ = -1;
};

class Job {
 public:
  explicit Job(const Case& what) : what_(what), rng_(what.seed), map_(map_of(what)) {
    for (Rank rank = 0; rank < map_->ranks(); ++rank) {
      members_.push_back(std::make_unique<Member>(what_, rank, map_, &rng_));
      bytes_ += members_.back()->router->buffer_bytes();
    }
    wire_.resize(members_.size());
    sent_to_.assign(what.epochs, std::vector<uint64_t>(members_.size()));
    if (what.stuck >= 0) members_[static_cast<size_t>(what.stuck)]->refuses = true;
  }

  // Until everything is done, somebody fails, or nothing moves any more.
  Status run() {
    uint64_t quiet = 0;
    for (uint64_t steps = 1;; ++steps) {
      if (step()) {
        quiet = 0;
      } else if (++quiet > (members_.size() > 100 ? 2 : 200) * members_.size()) {
        if (!settle()) return error(Code::kDeadlineExceeded, Scope::kOperation, "nothing moves any more");
        quiet = 0;
      }
      if (steps % members_.size() != 0) continue;
      for (const auto& member : members_) {
        if (!member->router->failure().ok()) return member->router->failure();
      }
      if (done()) break;
    }
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      uint64_t expected = 0;
      for (uint32_t epoch = 0; epoch < what_.epochs; ++epoch) {
        expected += sent_to_[epoch][rank];
        EXPECT_EQ(members_[rank]->taken_at_end[epoch], expected) << "rank " << rank << ", epoch " << epoch;
      }
      EXPECT_EQ(members_[rank]->wrong, 0u) << "rank " << rank;
      taken_ += members_[rank]->taken;
    }
    return ok_status();
  }

  uint64_t taken() const { return taken_; }
  uint64_t frames() const { return frames_; }
  const Member& member(size_t rank) const { return *members_[rank]; }
  bool unstuck() const { return unstuck_; }

 private:
  struct InFlight {
    std::string header;
    std::string payload;
  };

  bool done() const {
    return std::all_of(members_.begin(), members_.end(),
                       [&](const auto& member) { return member->epochs_complete == what_.epochs; });
  }

  bool step() {
    const auto rank = static_cast<Rank>(rng_.below(members_.size()));
    Member& member = *members_[static_cast<size_t>(rank)];
    switch (rng_.below(4)) {
      case 0: {
        bool any = false;
        for (uint64_t i = rng_.below(20); i > 0 && member.speak(&sent_to_); --i) any = true;
        return any;
      }
      case 1:
        return post(rank);
      case 2:
        return deliver_from(rank);
      default:
        if (rng_.chance(1, 40)) member.router->flush();
        return complete_a_send(rank) || resume(&member);
    }
  }

  static bool resume(Member* member) {
    if (!member->refused || member->refuses) return false;
    member->refused = false;
    const uint64_t before = member->taken + member->epochs_complete;
    member->router->resume();
    return member->taken + member->epochs_complete != before;
  }

  bool post(Rank from) {
    const auto post = members_[static_cast<size_t>(from)]->router->next_post();
    if (!post.has_value()) return false;
    std::deque<InFlight>& link = wire_[static_cast<size_t>(from)][post->to];
    InFlight frame{std::string(post->header.data(), post->header.size()), std::string(post->payload)};
    ++frames_;
    if (post->cookie != kNoCookie) lent_.push_back({from, post->cookie});
    const bool now = !wronged_ && frames_ > 50 && post->cookie != kNoCookie;
    if (now && what_.wrong == Case::Wrong::kDropsAFrame) {
      wronged_ = true;
      if (link.empty()) wire_[static_cast<size_t>(from)].erase(post->to);
      return true;
    }
    if (now && what_.wrong == Case::Wrong::kDoublesAFrame) {
      wronged_ = true;
      link.push_back(frame);
    }
    if (now && what_.wrong == Case::Wrong::kSwapsFrames && !link.empty()) {
      wronged_ = true;
      link.push_front(frame);
      return true;
    }
    if (now && what_.wrong == Case::Wrong::kAltersAnEnd && is_end(frame.payload)) {
      wronged_ = true;
      frame.payload.back() = static_cast<char>(frame.payload.back() ^ 1);  // of the count
    }
    link.push_back(std::move(frame));
    return true;
  }

  // Of an END alone in its frame: 0, epoch, count.
  static bool is_end(const std::string& payload) { return payload.size() == 3 && payload[0] == 0; }

  bool deliver_from(Rank from) {
    std::map<Rank, std::deque<InFlight>>& links = wire_[static_cast<size_t>(from)];
    if (links.empty()) return false;
    auto link = links.lower_bound(static_cast<Rank>(rng_.below(members_.size())));
    if (link == links.end()) link = links.begin();
    const Rank to = link->first;
    const InFlight frame = std::move(link->second.front());
    link->second.pop_front();
    if (link->second.empty()) links.erase(link);
    const auto header = FrameHeader::decode(frame.header, frame.payload, kSecret);
    EXPECT_TRUE(header.ok());
    ThreeHopRouter& router = *members_[static_cast<size_t>(to)]->router;
    EXPECT_TRUE(router.is_mine(header->channel));
    router.on_frame(from, *header, frame.payload);
    return true;
  }

  // Any of the sends that are under way, in any order.
  bool complete_a_send(Rank) {
    if (lent_.empty()) return false;
    const size_t i = rng_.below(lent_.size());
    const auto [rank, cookie] = lent_[i];
    lent_[i] = lent_.back();
    lent_.pop_back();
    members_[static_cast<size_t>(rank)]->router->on_sent(cookie);
    return true;
  }

  // Random steps have found nothing for long: does everything that there is to do. False: there was nothing.
  bool settle() {
    bool any = false;
    for (Rank rank = 0; rank < static_cast<Rank>(members_.size()); ++rank) {
      Member& member = *members_[static_cast<size_t>(rank)];
      any = member.speak(&sent_to_) || any;
      while (post(rank)) any = true;
      any = resume(&member) || any;
    }
    while (complete_a_send(0)) any = true;
    for (Rank from = 0; from < static_cast<Rank>(members_.size()); ++from) {
      while (deliver_from(from)) any = true;
    }
    if (any) return true;
    for (const auto& member : members_) {
      if (!member->refuses || what_.stuck_for_good) continue;
      member->refuses = false;
      unstuck_ = true;
      any = true;
    }
    return any;
  }

  const Case what_;
  Rng rng_;
  std::shared_ptr<const NodeMap> map_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::map<Rank, std::deque<InFlight>>> wire_;  // by source, then destination
  std::vector<std::pair<Rank, uint64_t>> lent_;
  std::vector<std::vector<uint64_t>> sent_to_;  // messages by epoch and destination
  uint64_t frames_ = 0;
  uint64_t taken_ = 0;
  uint64_t bytes_ = 0;
  bool wronged_ = false;
  bool unstuck_ = false;
};

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

// One rank takes nothing while everybody sends, with the least buffers that there can be: everything fills up and stops.
// When it takes again, everything arrives.
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

// Canary: a job that can never finish is seen to stand still, and its other ranks hold no more than their buffers.
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

// A thousand ranks, each with links to few: what it takes to end an epoch.
TEST(ThreeHop, AThousandRanksEndAnEpochWithFramesToTheirLinksAlone) {
  Case what;
  what.ranks_per_node = std::vector<int32_t>(64, 16);
  what.messages_per_rank = 16;
  what.epochs = 2;
  Job job(what);
  const Status status = job.run();
  ASSERT_TRUE(status.ok()) << status.to_string();
  const uint64_t links = 15 + 4 + 15;  // of hops 1, 2 and 3
  EXPECT_LE(job.frames(), 1024 * what.epochs * (2 * links + 60))
      << "an END and a credit a link, and some data";
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

// Frames with right headers and any content: an error, never a read or a write beyond them (AddressSanitizer looks).
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
    std::string payload(1 + rng.below(round % 10 == 0 ? 1200 : 40), '\0');
    for (char& byte : payload) byte = static_cast<char>(rng.below(rng.chance(1, 2) ? 6 : 256));
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
}  // namespace swale::net
