// Many ranks that call each other over a simulated fabric, on one thread, from one seed; and a model that
// knows what each call may end with.
//
// Fault model: frames from one rank to another arrive in order, at any time, so frames of different peers in
// any order; a receiver that is slow leaves a window of unread frames; a rank can be stuck (its frames wait,
// it reads none) and later wake, or be killed, of which the others hear one by one, later. For the canaries
// the n-th frame is lost, doubled or altered. (That frames of one rank arrive in order is Router's to see to:
// RpcCore alone would not notice all swaps.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/coding.h"
#include "base/rng.h"
#include "net/rpc/rpc_core.h"

namespace swale::net::rpc_sim_test {
namespace {

enum class FrameFault { kNone, kLose, kDouble, kAlter };

struct SimParams {
  uint64_t seed = 1;
  int32_t ranks = 4;
  size_t calls = 300;        // of each rank
  size_t window_frames = 2;  // unread at a peer
  size_t window_bytes = 32 * kKiB;
  bool faults = true;  // deadlines, cancellations, stuck and killed ranks
  FrameFault frame_fault = FrameFault::kNone;
  uint64_t frame_number = 0;
  uint64_t steps_max = 4'000'000;
};

constexpr size_t kFrameBytes = kRpcFrameBytesMin;
constexpr size_t kMessageBytesMax = 100 * kKiB;
constexpr size_t kGrantedBytesMax = 2 * kMessageBytesMax + kRpcCallBytes + 10'000;
constexpr size_t kHeadBytes = 20;
constexpr RpcMethod kMethods = 3;

// A request says who asks, for the how-manieth time, and how long the answer is to be; the rest follows from
// that.
std::string bytes_of(uint64_t key, size_t bytes) {
  std::string text(bytes, '\0');
  Rng rng(key);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(&text[i], &word, std::min<size_t>(8, bytes - i));
  }
  return text;
}

struct Asked {
  Rank from;
  Rank to;
  uint64_t tag;
  RpcMethod method;
  size_t request_bytes;
  size_t response_bytes;

  uint64_t key() const { return static_cast<uint64_t>(from) << 40 | tag; }
  bool service_fails() const { return method == 2; }
  std::string request() const {
    std::string text;
    append_u64(&text, key());
    append_u64(&text, response_bytes);
    append_u32(&text, static_cast<uint32_t>(to));
    return text + bytes_of(key(), request_bytes - kHeadBytes);
  }
  std::string response() const { return bytes_of(~key(), response_bytes); }
};

class Simulation {
 public:
  explicit Simulation(const SimParams& params) : params_(params), rng_(params.seed) {
    for (Rank rank = 0; rank < params.ranks; ++rank) {
      RpcParams core;
      core.rank = rank;
      core.ranks = params.ranks;
      core.host_of = [](Rank each) { return fmt::format("h{}", each); };
      core.methods = {"echo", "lookup", "fail"};
      core.frame_bytes = kFrameBytes;
      core.window_bytes = params.window_bytes;
      core.message_bytes_max = kMessageBytesMax;
      core.granted_bytes_max = kGrantedBytesMax;
      core.calls_bytes_max = kGrantedBytesMax;
      core.calls_max = 40;
      nodes_.emplace_back().core = std::make_unique<RpcCore>(std::move(core));
      nodes_.back().links.resize(static_cast<size_t>(params.ranks));
    }
  }

  // Why the run is wrong; "": it is right.
  std::string run() {
    for (uint64_t step = 0; step < params_.steps_max && problem_.empty(); ++step) {
      now_ += static_cast<Nanos>(rng_.below(100'000));
      const bool asking = act();
      if (step % 64 == 0) check_bounds();
      if (!asking && step % 256 == 0 && at_rest()) break;
    }
    if (problem_.empty()) judge_end();
    return problem_;
  }
  uint64_t frames() const { return frames_; }
  uint64_t answered() const { return answered_; }
  uint64_t failed() const { return failed_; }
  uint64_t offered_bytes() const { return large_; }

 private:
  using Link = std::deque<std::string>;  // of frames
  struct Node {
    std::unique_ptr<RpcCore> core;
    std::vector<Link> links;  // from this rank, by receiver
    std::map<uint64_t, Asked> open;
    std::map<uint64_t, CallId> ids;
    std::map<uint64_t, Nanos> deadlines;
    std::map<uint64_t, bool> cancelled;
    std::vector<std::pair<RpcRequest, Asked>> taken;
    std::map<uint64_t, bool> served;  // keys
    std::vector<bool> knows_dead = std::vector<bool>(16);
    uint64_t asked = 0;
    bool dead = false;
    Nanos stuck_until = 0;
  };

  Node& node(Rank rank) { return nodes_[static_cast<size_t>(rank)]; }
  Rank any_rank() { return static_cast<Rank>(rng_.below(nodes_.size())); }
  void blame(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
  }

  // One thing that happens at one rank. False: the ranks ask for no more.
  bool act() {
    const Rank rank = any_rank();
    Node& at = node(rank);
    const bool faults = params_.faults;
    bool asking = false;
    for (const Node& each : nodes_) asking |= !each.dead && each.asked < params_.calls;
    if (at.dead) return asking;
    if (faults && asking && rng_.chance(1, 20'000)) kill(rank);
    if (faults && rng_.chance(1, 4'000)) at.stuck_until = now_ + milliseconds(50);
    if (at.dead || at.stuck_until > now_) return asking;
    switch (rng_.below(8)) {
      case 0:
        if (at.asked < params_.calls) ask(rank);
        break;
      case 1:
      case 2:
        send(rank);
        break;
      case 3:
      case 4:
        deliver(rank);
        break;
      case 5:
        serve(rank);
        break;
      case 6:
        complete(rank);
        break;
      default:
        other_events(rank);
    }
    return asking;
  }

  size_t any_size(size_t least) {
    switch (rng_.below(12)) {
      case 0:
        return least;
      case 1:
        return kFrameBytes - PieceHeader::kBytes - 2 + rng_.below(5);
      case 2:
        return least + rng_.below(20'000);
      case 3:
        return rng_.chance(1, 4) ? kMessageBytesMax - rng_.below(50'000) : least + rng_.below(5'000);
      default:
        return least + rng_.below(200);
    }
  }

  void ask(Rank rank) {
    Node& at = node(rank);
    if (rng_.chance(1, 20)) return ask_all(rank);
    Asked asked{
        rank,       any_rank(), at.asked, static_cast<RpcMethod>(rng_.below(kMethods)), any_size(kHeadBytes),
        any_size(0)};
    RpcCall call{.to = asked.to, .method = asked.method, .payload = asked.request(), .tag = asked.tag};
    call.response_bytes_max =
        static_cast<uint32_t>(std::min(kMessageBytesMax, asked.response_bytes + rng_.below(100)));
    if (params_.faults && rng_.chance(1, 10))
      call.deadline = now_ + static_cast<Nanos>(rng_.below(40'000'000));
    const Nanos deadline = call.deadline;
    if (rpc_cost(asked.request_bytes, call.response_bytes_max) > params_.window_bytes) ++large_;
    const auto id = at.core->call(std::move(call), now_);
    if (!id.ok()) {
      if (id.status().code() != Code::kResourceExhausted) blame(id.status().to_string());
      return;
    }
    note(&at, asked, *id, deadline);
  }

  void ask_all(Rank rank) {
    Node& at = node(rank);
    std::vector<Rank> all;
    for (Rank each = 0; each < params_.ranks; ++each) all.push_back(each);
    // The same bytes for all: the receiver stands in the head, so the first rank's.
    Asked asked{rank, 0, at.asked, 1, kHeadBytes + rng_.below(3000), rng_.below(500)};
    const auto ids = at.core->call_many(all,
                                        {.method = 1,
                                         .payload = asked.request(),
                                         .response_bytes_max = static_cast<uint32_t>(asked.response_bytes),
                                         .tag = asked.tag},
                                        now_);
    if (!ids.ok()) return;
    // One tag for all calls: the model counts the answers.
    many_[asked.key()] = all.size();
    note(&at, asked, ids->front(), kForever);
  }

  void note(Node* at, const Asked& asked, CallId id, Nanos deadline) {
    at->open.emplace(asked.tag, asked);
    at->ids.emplace(asked.tag, id);
    at->deadlines.emplace(asked.tag, deadline);
    ++at->asked;
  }

  void send(Rank rank) {
    Node& at = node(rank);
    for (size_t left = at.core->ready_count(); left > 0; --left) {
      const Rank to = at.core->next_ready();
      if (to < 0) continue;
      Link& link = at.links[static_cast<size_t>(to)];
      if (link.size() >= params_.window_frames) continue;
      std::string frame(kFrameBytes, '\0');
      frame.resize(at.core->fill_frame(to, {frame.data(), frame.size()}));
      if (frame.empty()) return blame("an empty frame");
      put(&link, std::move(frame));
      return;
    }
  }

  void put(Link* link, std::string frame) {
    const bool hit = frames_++ == params_.frame_number;
    switch (hit ? params_.frame_fault : FrameFault::kNone) {
      case FrameFault::kNone:
        link->push_back(std::move(frame));
        break;
      case FrameFault::kLose:
        break;
      case FrameFault::kDouble:
        link->push_back(frame);
        link->push_back(std::move(frame));
        break;
      case FrameFault::kAlter:
        frame.back() = static_cast<char>(frame.back() ^ 1);
        link->push_back(std::move(frame));
        break;
    }
  }

  void deliver(Rank to) {
    const Rank from = any_rank();
    Link& link = node(from).links[static_cast<size_t>(to)];
    if (link.empty() || node(to).knows_dead[static_cast<size_t>(from)]) return;
    const std::string frame = std::move(link.front());
    link.pop_front();
    const Status status = node(to).core->on_frame(from, frame, now_);
    if (!status.ok()) blame(status.to_string());
  }

  void serve(Rank rank) {
    Node& at = node(rank);
    if (rng_.chance(1, 2)) {
      std::vector<RpcRequest> requests;
      at.core->take_requests(1 + rng_.below(8), &requests, now_);
      for (RpcRequest& each : requests) judge_request(rank, std::move(each));
      return;
    }
    if (at.taken.empty()) return;
    const size_t which = rng_.below(at.taken.size());
    std::swap(at.taken[which], at.taken.back());
    const auto [request, asked] = std::move(at.taken.back());
    at.taken.pop_back();
    if (asked.service_fails()) {
      at.core->reply(request.token, error(Code::kNotFound, Scope::kFile, "key {}", asked.key()), now_);
    } else {
      at.core->reply(request.token, RpcPayload(asked.response()), now_);
    }
    if (at.core->reply(request.token, RpcPayload("twice"), now_)) blame("a request was answered twice");
  }

  void judge_request(Rank rank, RpcRequest request) {
    Decoder in(request.payload);
    const uint64_t key = in.u64();
    const uint64_t response_bytes = in.u64();
    const uint32_t to = in.u32();
    Asked asked{static_cast<Rank>(key >> 40), static_cast<Rank>(to), key & 0xffffffffff, request.method,
                request.payload.size(),       response_bytes};
    if (!in.ok() || asked.from != request.from || response_bytes > kMessageBytesMax ||
        asked.request() != request.payload || (asked.to != rank && !many_.contains(key))) {
      return blame(fmt::format("rank {} got a request of rank {} that was not made", rank, request.from));
    }
    if (!node(rank).served.emplace(key, true).second)
      return blame(fmt::format("request {:x} came twice", key));
    node(rank).taken.emplace_back(std::move(request), asked);
  }

  void complete(Rank rank) {
    std::vector<RpcCompletion> done;
    node(rank).core->take_completions(&done);
    for (const RpcCompletion& each : done) judge(rank, each);
  }

  void judge(Rank rank, const RpcCompletion& done) {
    Node& at = node(rank);
    const auto found = at.open.find(done.tag);
    if (found == at.open.end()) return blame(fmt::format("rank {}: call {} completed twice", rank, done.tag));
    const Asked asked = found->second;
    const auto many = many_.find(asked.key());
    if (many == many_.end() && asked.to != done.from) return blame("another rank answered");
    if (many == many_.end() || --many->second == 0) at.open.erase(found);
    if (done.response.ok()) {
      ++answered_;
      if (asked.service_fails()) return blame("a response in place of a failure");
      if (*done.response != asked.response())
        return blame(fmt::format("a wrong response to {:x}", asked.key()));
      return;
    }
    ++failed_;
    const Status why = done.response.status();
    if (why.message().find(fmt::format("rank {} (host h{})", done.from, done.from)) == std::string::npos) {
      return blame("a failure that does not name the rank: " + why.to_string());
    }
    const bool right = [&] {
      switch (why.code()) {
        case Code::kNotFound:
          return asked.service_fails() && why.message().ends_with(fmt::format("key {}", asked.key()));
        case Code::kDeadlineExceeded:
          return at.deadlines[done.tag] <= now_;
        case Code::kAborted:
          return at.cancelled[done.tag];
        case Code::kUnavailable:
          return static_cast<bool>(at.knows_dead[static_cast<size_t>(done.from)]);
        default:
          return false;
      }
    }();
    if (!right) blame(fmt::format("call {:x} failed without reason: {}", asked.key(), why.to_string()));
  }

  void other_events(Rank rank) {
    Node& at = node(rank);
    at.core->tick(now_);
    if (params_.faults && rng_.chance(1, 8) && !at.open.empty()) {
      auto call = at.open.begin();
      std::advance(call, static_cast<ptrdiff_t>(rng_.below(at.open.size())));
      if (!many_.contains(call->second.key())) {
        at.cancelled[call->first] = true;
        at.core->cancel(at.ids[call->first], now_);
      }
    }
    const Rank dead = any_rank();
    if (node(dead).dead && !at.knows_dead[static_cast<size_t>(dead)]) {
      at.knows_dead[static_cast<size_t>(dead)] = true;
      at.core->on_down(dead, error(Code::kUnavailable, Scope::kPeer, "killed"), now_);
    }
  }

  void kill(Rank rank) {
    if (dead_ + 2 > params_.ranks) return;
    ++dead_;
    node(rank).dead = true;
  }

  void check_bounds() {
    for (const Node& each : nodes_) {
      if (each.core->held_bytes() > nodes_.size() * params_.window_bytes + kGrantedBytesMax) {
        blame("a server holds too much");
      }
      if (each.core->open_calls() > 40 || each.core->open_bytes() > kGrantedBytesMax) {
        blame("a caller has too much open");
      }
    }
  }

  bool at_rest() {
    for (Rank rank = 0; rank < params_.ranks; ++rank) {
      const Node& each = node(rank);
      if (each.dead) continue;
      if (!each.open.empty() || each.core->open_calls() > 0 || each.core->open_requests() > 0) return false;
    }
    return true;
  }

  void judge_end() {
    for (Rank rank = 0; rank < params_.ranks; ++rank) {
      const Node& each = node(rank);
      if (each.dead) continue;
      if (!each.open.empty()) {
        return blame(fmt::format("rank {}: {} calls were never answered", rank, each.open.size()));
      }
      if (each.core->open_calls() + each.core->open_bytes() + each.core->open_requests() +
              each.core->held_bytes() !=
          0) {
        return blame(fmt::format("rank {}: something was left behind", rank));
      }
    }
  }

  const SimParams params_;
  Rng rng_;
  Nanos now_ = seconds(1);
  std::deque<Node> nodes_;
  std::map<uint64_t, size_t> many_;  // keys of calls to all, and how many are to complete
  std::string problem_;
  uint64_t frames_ = 0;
  uint64_t answered_ = 0;
  uint64_t failed_ = 0;
  uint64_t large_ = 0;
  int32_t dead_ = 0;
};

uint64_t seeds(uint64_t usual) {
  const char* factor = std::getenv("SWALE_SIM_SEEDS");
  return factor == nullptr ? usual : usual * std::strtoull(factor, nullptr, 10);
}

TEST(RpcSim, EveryCallIsAnsweredOnceAndRightly) {
  uint64_t answered = 0, large = 0;
  for (uint64_t seed = 1; seed <= seeds(20); ++seed) {
    SimParams params{.seed = seed, .ranks = static_cast<int32_t>(1 + seed % 5), .faults = false};
    params.window_frames = 1 + seed % 3;
    Simulation simulation(params);
    ASSERT_EQ(simulation.run(), "") << "seed " << seed;
    answered += simulation.answered();
    large += simulation.offered_bytes();
  }
  EXPECT_GT(answered, 1000u);
  EXPECT_GT(large, 100u);  // offers are among them
}

TEST(RpcSim, DeadlinesCancellationsStuckAndKilledRanksFailOnlyWhatTheyMust) {
  uint64_t answered = 0, failed = 0;
  for (uint64_t seed = 1; seed <= seeds(60); ++seed) {
    SimParams params{.seed = seed, .ranks = static_cast<int32_t>(2 + seed % 5)};
    params.window_frames = 1 + seed % 3;
    params.window_bytes = seed % 2 == 0 ? 32 * kKiB : 2 * kKiB;  // tiny credits: most requests are offered
    Simulation simulation(params);
    ASSERT_EQ(simulation.run(), "") << "seed " << seed;
    answered += simulation.answered();
    failed += simulation.failed();
  }
  EXPECT_GT(answered, 1000u);
  EXPECT_GT(failed, 1000u);
}

TEST(RpcSim, OneSeedReplaysExactly) {
  Simulation first({.seed = 42}), second({.seed = 42}), other({.seed = 43});
  EXPECT_EQ(first.run(), "");
  EXPECT_EQ(second.run(), "");
  EXPECT_EQ(other.run(), "");
  EXPECT_EQ(first.frames(), second.frames());
  EXPECT_EQ(first.answered(), second.answered());
  EXPECT_NE(first.frames(), other.frames());
}

// Canaries: what a fabric must never do is noticed, in every run.
class RpcSimCanary : public testing::TestWithParam<FrameFault> {};

TEST_P(RpcSimCanary, IsNoticed) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimParams params{.seed = seed, .ranks = 3, .calls = 60, .faults = false};
    params.frame_fault = GetParam();
    params.frame_number = 5 + seed;
    params.steps_max = 200'000;  // what is lost is waited for
    EXPECT_NE(Simulation(params).run(), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RpcSimCanary,
                         testing::Values(FrameFault::kLose, FrameFault::kDouble, FrameFault::kAlter));

}  // namespace
}  // namespace swale::net::rpc_sim_test
