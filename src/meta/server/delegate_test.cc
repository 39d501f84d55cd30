// The ring and its delegates: many servers as passive machines, messages that take their time, servers that
// die.
#include "meta/server/delegate.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "base/rng.h"
#include "meta/attributes/attribute_table.h"

namespace swale::meta::delegate_test {
namespace {

TEST(Ring, GoesAsThePaperDrawsIt) {
  EXPECT_EQ(ring_parent(1, 0, 8, 2), 5u);
  EXPECT_EQ(ring_parent(5, 0, 8, 2), 7u);
  EXPECT_EQ(ring_parent(3, 0, 8, 2), 7u);
  EXPECT_EQ(ring_parent(7, 0, 8, 2), 0u);
  EXPECT_EQ(std::set<uint32_t>({4, 6, 7}), [] {
    const std::vector<uint32_t> children = ring_children(0, 0, 8, 2);
    return std::set<uint32_t>(children.begin(), children.end());
  }());
}

TEST(Ring, EveryServerReachesEveryRootInAsManyHopsAsTheDistanceHasDigits) {
  for (const uint32_t radix : {2u, 3u, 8u}) {
    for (uint32_t servers = 1; servers < 70; ++servers) {
      uint32_t digits = 0;
      for (uint32_t left = servers - 1; left > 0; left /= radix) ++digits;
      for (uint32_t root = 0; root < servers; root += 1 + servers / 7) {
        std::map<uint32_t, std::set<uint32_t>> children;
        for (uint32_t server = 0; server < servers; ++server) {
          if (server != root) children[ring_parent(server, root, servers, radix)].insert(server);
          uint32_t hops = 0;
          for (uint32_t at = server; at != root; at = ring_parent(at, root, servers, radix)) ++hops;
          ASSERT_LE(hops, digits);
        }
        for (uint32_t server = 0; server < servers; ++server) {
          const std::vector<uint32_t> said = ring_children(server, root, servers, radix);
          ASSERT_EQ(std::set<uint32_t>(said.begin(), said.end()), children[server]);
          ASSERT_LE(said.size(), size_t{digits} * (radix - 1));
        }
      }
    }
  }
}

enum class Sabotage { kNone, kAnswerQueued };

// Servers and their clients. Every message takes a random time. A client asks its delegate, and the root if
// that does not answer.
class Storm {
 public:
  Storm(uint64_t seed, uint32_t servers, RingMode mode, Sabotage sabotage = Sabotage::kNone)
      : rng_(seed), servers_(servers), mode_(mode), sabotage_(sabotage), dead_(servers) {
    for (uint32_t i = 0; i < servers; ++i) {
      sides_.push_back(std::make_unique<Side>(this, i));
      delegates_.push_back(std::make_unique<Delegate>(
          Delegate::Shape{.server = i, .servers = servers, .mode = mode, .in_flight_max = 1 + seed % 4},
          sides_.back().get()));
    }
  }

  // What a client hears at the end.
  struct Heard {
    Result<std::string> response{std::string()};
    bool done = false;
    int times = 0;
    uint64_t closed_before = 0;  // the largest size whose close had ended when this one asked
  };

  uint64_t ask(uint32_t home, AttributeRequest request) {
    const uint64_t token = heard_.size();
    heard_.push_back({});
    heard_.back().closed_before = closed_;
    asked_.push_back(request);
    const uint32_t to = mode_ == RingMode::kPlain ? root_ : home;
    later([=, this] { arrive(to, request, token, /*from=*/-1); });
    homes_.push_back(to);
    return token;
  }
  void kill(uint32_t server) {
    dead_[server] = true;
    // Callers learn of it later.
    for (auto& [key, call] : open_) {
      if (call.to == server) {
        const uint64_t gone = key;
        later(
            [=, this] { complete(gone, error(Code::kUnavailable, Scope::kPeer, "server {} died", server)); });
      }
    }
    for (uint64_t token = 0; token < heard_.size(); ++token) {
      if (!heard_[token].done && homes_[token] == server) later([=, this] { client_lost(token, server); });
    }
  }
  void at(std::function<void()> act) { later(std::move(act)); }
  void run() {
    for (uint64_t step = 0; !events_.empty() && step < 1'000'000; ++step) {
      const size_t which = rng_.below(std::min<size_t>(events_.size(), 64));
      std::swap(events_[which], events_.front());
      auto act = std::move(events_.front());
      events_.pop_front();
      act();
    }
  }
  const std::vector<Heard>& heard() const { return heard_; }
  uint64_t root_requests() const { return root_requests_; }
  uint32_t root() const { return root_; }
  AttributeTable& table() { return table_; }
  size_t waiting() const {
    size_t all = 0;
    for (uint32_t i = 0; i < servers_; ++i) all += dead_[i] ? 0 : delegates_[i]->waiting();
    return all;
  }

 private:
  struct Side : Delegate::Actions {
    Side(Storm* of, uint32_t number) : storm(of), server(number) {}
    void forward(uint32_t to, const AttributeRequest& request, uint64_t id) override {
      const uint64_t key = storm->next_++;
      storm->open_[key] = {server, to, id};
      storm->later([storm = storm, to, request, key] { storm->arrive(to, request, key, 0); });
    }
    void answer(uint64_t token, const Result<std::string>& response) override {
      storm->answer(token, response);
    }
    Storm* const storm;
    const uint32_t server;
  };
  struct Open {
    uint32_t from, to;
    uint64_t id;
  };
  static constexpr uint64_t kServerToken = uint64_t{1} << 40;

  void later(std::function<void()> act) { events_.push_back(std::move(act)); }
  bool is_dead(uint32_t server) const { return dead_[server]; }

  // from < 0: of a client.
  void arrive(uint32_t to, const AttributeRequest& request, uint64_t key, int from) {
    const uint64_t token = from < 0 ? key : key | kServerToken;
    if (is_dead(to)) {
      if (from < 0) return later([=, this] { client_lost(key, to); });
      return later(
          [=, this] { complete(key, error(Code::kUnavailable, Scope::kPeer, "server {} is dead", to)); });
    }
    if (to != root_) {
      delegates_[to]->on_request(request, root_, token);
      return later([=, this] {
        if (!is_dead(to)) delegates_[to]->flush();
      });  // some time after what else has come
    }
    ++root_requests_;
    std::string record;
    const Result<Applied> applied = table_.apply(request, &record);
    answer(token, applied.ok() ? Result<std::string>(encode_answer(applied->answer))
                               : Result<std::string>(applied.status()));
  }
  void answer(uint64_t token, Result<std::string> response) {
    if (sabotage_ == Sabotage::kAnswerQueued && response.ok()) stale_ = *response;
    if ((token & kServerToken) != 0) {
      return later([=, this] { complete(token & ~kServerToken, response); });
    }
    if (sabotage_ == Sabotage::kAnswerQueued && rng_.chance(1, 4) && !stale_.empty() && !first_.empty())
      response = first_;
    if (first_.empty() && response.ok()) first_ = *response;
    later([=, this] { hear(token, response); });
  }
  void complete(uint64_t key, Result<std::string> response) {
    const auto found = open_.find(key);
    if (found == open_.end()) return;
    const Open open = found->second;
    open_.erase(found);
    if (is_dead(open.from)) return;
    delegates_[open.from]->on_answer(open.id, response);
    later([this, from = open.from] {
      if (!is_dead(from)) delegates_[from]->flush();
    });
  }
  void client_lost(uint64_t token, uint32_t server) {
    if (heard_[token].done || homes_[token] != server) return;
    if (homes_[token] == root_)
      return hear(token, error(Code::kUnavailable, Scope::kPeer, "the root is dead"));
    homes_[token] = root_;
    arrive(root_, asked_[token], token, -1);
  }
  void hear(uint64_t token, Result<std::string> response) {
    Heard& heard = heard_[token];
    ++heard.times;
    if (heard.done) return;
    heard.done = true;
    if (response.ok() && asked_[token].op == AttributeOp::kClose)
      closed_ = std::max(closed_, asked_[token].size);
    heard.response = std::move(response);
  }

  Rng rng_;
  const uint32_t servers_;
  const RingMode mode_;
  const Sabotage sabotage_;
  const uint32_t root_ = 0;
  AttributeTable table_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<Delegate>> delegates_;
  std::vector<bool> dead_;
  std::deque<std::function<void()>> events_;
  std::map<uint64_t, Open> open_;
  std::vector<Heard> heard_;
  std::vector<AttributeRequest> asked_;
  std::vector<uint32_t> homes_;
  uint64_t next_ = 1;
  uint64_t root_requests_ = 0;
  uint64_t closed_ = 0;
  std::string first_, stale_;
};

AttributeRequest request(AttributeOp op, uint64_t client, uint64_t size = 0) {
  AttributeRequest made;
  made.op = op;
  made.name = "f";
  made.from = {client, 1};
  made.size = size;
  made.generation = 1;
  return made;
}

// A storm of closes and stats, clients that come late, twice or never hear, servers that die. "": all is
// right.
std::string storm(uint64_t seed, RingMode mode, Sabotage sabotage, uint64_t* killed) {
  Rng rng(seed);
  const uint32_t servers = 2 + static_cast<uint32_t>(rng.below(40));
  Storm storm(seed, servers, mode, sabotage);
  std::string record;
  static_cast<void>(storm.table().apply(request(AttributeOp::kCreate, 1), &record));
  uint64_t largest = 0;
  std::vector<uint64_t> stats;
  for (uint64_t client = 1; client < 100; ++client) {
    const auto home = static_cast<uint32_t>(rng.below(servers));
    if (rng.chance(1, 2)) {
      const uint64_t size = rng.below(10'000);
      largest = std::max(largest, size);
      const AttributeRequest close = request(AttributeOp::kClose, client, size);
      storm.ask(home, close);
      if (rng.chance(1, 10)) storm.ask(home, close);  // twice
    } else {
      // Later: after some closes have ended.
      storm.at([&storm, &stats, home, client] {
        stats.push_back(storm.ask(home, request(AttributeOp::kStat, client)));
      });
    }
    if (rng.chance(1, 40)) {
      const auto victim = 1 + static_cast<uint32_t>(rng.below(servers - 1));
      ++*killed;
      storm.at([&storm, victim] { storm.kill(victim); });
    }
  }
  storm.run();
  for (const Storm::Heard& heard : storm.heard()) {
    if (!heard.done) return "a client never heard";
    if (!heard.response.ok()) return heard.response.status().to_string();
  }
  if (storm.waiting() != 0) return "a delegate still waits";
  if (storm.table().find("f")->size != largest) return "a close was lost";
  for (const uint64_t token : stats) {
    const auto answer = decode_answer(*storm.heard()[token].response);
    if (!answer.ok()) return answer.status().to_string();
    if (answer->attributes.size < storm.heard()[token].closed_before)
      return "a stat is older than a close that had ended before it";
  }
  return "";
}

TEST(Delegate, AStormIsAnsweredRightWhoeverIsLateTwiceOrDead) {
  uint64_t killed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    for (const RingMode mode : {RingMode::kRing, RingMode::kDirect, RingMode::kPlain}) {
      ASSERT_EQ(storm(seed, mode, Sabotage::kNone, &killed), "")
          << "seed " << seed << ", mode " << static_cast<int>(mode);
    }
  }
  std::printf("1,200 storms, %lu servers killed\n", static_cast<unsigned long>(killed));
  EXPECT_GT(killed, 500u);
}

TEST(Delegate, CanaryAnswersOfEarlierRequestsAreSeen) {
  int seen = 0;
  uint64_t killed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed)
    seen += !storm(seed, RingMode::kRing, Sabotage::kAnswerQueued, &killed).empty();
  EXPECT_GT(seen, 20);
}

TEST(Delegate, ExclusiveCreationHasOneWinnerInEveryMode) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const RingMode mode : {RingMode::kRing, RingMode::kDirect, RingMode::kPlain}) {
      Storm storm(seed, 20, mode);
      for (uint64_t client = 1; client < 60; ++client)
        storm.ask(static_cast<uint32_t>(client % 20), request(AttributeOp::kCreateExclusive, client));
      if (seed % 2 == 1) storm.at([&] { storm.kill(7); });
      storm.run();
      uint64_t winners = 0;
      for (uint64_t token = 0; token < storm.heard().size(); ++token) {
        ASSERT_TRUE(storm.heard()[token].done);
        const auto answer = decode_answer(*storm.heard()[token].response);
        winners += answer->attributes.creator.client == token + 1;
      }
      ASSERT_EQ(winners, 1u);
    }
  }
}

TEST(Delegate, TheRootHearsFewRequestsOfAStorm) {
  std::map<RingMode, uint64_t> heard;
  for (const RingMode mode : {RingMode::kRing, RingMode::kDirect, RingMode::kPlain}) {
    Storm storm(3, 64, mode);
    std::string record;
    static_cast<void>(storm.table().apply(request(AttributeOp::kCreate, 1), &record));
    for (uint64_t client = 1; client <= 1024; ++client)
      storm.ask(static_cast<uint32_t>(client % 64), request(AttributeOp::kClose, client, client));
    storm.run();
    heard[mode] = storm.root_requests();
  }
  EXPECT_EQ(heard[RingMode::kPlain], 1024u);
  EXPECT_LT(heard[RingMode::kDirect], 200u);  // twice a delegate: the first at once, the rest as one
  EXPECT_LT(heard[RingMode::kRing], 100u);
}

}  // namespace
}  // namespace swale::meta::delegate_test
