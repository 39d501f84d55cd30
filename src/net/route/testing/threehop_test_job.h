// A whole job of ThreeHopRouters on one thread, for tests: random delays of frames, completions in any order,
// sinks that refuse, and, for canaries, a network that does wrong.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "net/route/threehop_router.h"

namespace swale::net::test {

inline constexpr uint64_t kSecret = 99;
inline constexpr uint32_t kChannel = 5;

inline NodeMap blocks(const std::vector<int32_t>& ranks_per_node) {
  auto map = NodeMap::in_blocks(ranks_per_node);
  EXPECT_TRUE(map.ok()) << map.status().to_string();
  return std::move(*map);
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

inline std::shared_ptr<const NodeMap> map_of(const Case& what) {
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
    frames_of_.resize(members_.size());
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
  uint64_t frames_of(size_t rank) const { return frames_of_[rank]; }
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
    ++frames_of_[static_cast<size_t>(from)];
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
    // Only frames of one channel have an order.
    const auto of_channel = [&](const InFlight& other) {
      return Bytes(other.header).substr(4, 4) == Bytes(frame.header).substr(4, 4);
    };
    if (now && what_.wrong == Case::Wrong::kSwapsFrames &&
        std::any_of(link.begin(), link.end(), of_channel)) {
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

  // Of an END alone in its frame: the frame's tag, 0, count.
  static bool is_end(const std::string& payload) { return payload.size() == 3 && payload[1] == 0; }

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
  std::vector<uint64_t> frames_of_;  // by source
  uint64_t taken_ = 0;
  uint64_t bytes_ = 0;
  bool wronged_ = false;
  bool unstuck_ = false;
};

}  // namespace swale::net::test
