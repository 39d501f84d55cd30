// The transport `tls` under random schedules: real TLS over the simulated Wire. Ranks post frames of all
// sizes at random times; bytes come in any pieces, late, and while others dial, die, stop, are parted or
// flooded by strangers. What transport.h promises must hold in each, nobody may wait for ever, and no turn
// may be for nothing again and again. SWALE_SIM_SEEDS multiplies the seeds (make test-long).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "net/fabric/tls_transport.h"
#include "sim/test_seeds.h"
#include "sim/tls_net.h"

namespace swale::sim::tls_schedules_test {
namespace {

using net::Rank;

constexpr uint64_t kSpinMax = 8;  // turns that go on with what has come

enum class Fault { kNone, kAlter, kKill, kStop, kPart, kPartForGood, kStrangers, kDescriptors };

// Points that the schedules of a test have visited.
struct Visited {
  uint64_t schedules = 0, frames = 0, down = 0, rejected = 0, turns = 0, spin = 0;
  Wire::Counts wire;
  void print(const char* what) const {
    fmt::print(
        "{}: {} schedules, {} frames, {} turns ({} alone at most), {}, {} strangers dropped, {} peers down\n",
        what, schedules, frames, turns, spin, wire.text(), rejected, down);
  }
};

std::string payload_of(Rank from, Rank to, uint64_t number, size_t bytes) {
  std::string made(bytes, '\0');
  Rng rng(static_cast<uint64_t>(from) * 1'000'003 + static_cast<uint64_t>(to) * 10'007 + number);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(&made[i], &word, std::min<size_t>(8, bytes - i));
  }
  return made;
}

// One schedule, and what it must keep.
class Schedule {
 public:
  Schedule(uint64_t seed, Fault fault, bool in_clear = false)
      : fault_(fault), events_(seed * 31 + static_cast<uint64_t>(fault)) {
    Rng& rng = events_.rng();
    params_.ranks = 2 + static_cast<int32_t>(rng.below(4));
    params_.in_clear = in_clear;
    params_.silence_deadline = seconds(10);
    if (rng.chance(1, 3)) params_.rekey_after = 1 + rng.below(5);
    params_.wire.window_bytes = rng.chance(1, 2) ? 64 * kKiB : 1 + rng.below(300 * kKiB);
    params_.wire.piece_bytes_max = rng.chance(1, 4) ? 1 + rng.below(100) : 1460 + rng.below(60'000);
    params_.wire.flight_max = rng.chance(1, 4) ? milliseconds(50) : 50'000;
    if (fault == Fault::kAlter) params_.wire.altered_piece = static_cast<int64_t>(rng.below(120));
    net_ = std::make_unique<TlsNet>(events_, params_, told());
    for (Rank rank = 0; rank < params_.ranks; ++rank) plan_posts(rank);
    plan_fault();
  }

  // The first thing that is wrong; "" if all is as it should be.
  std::string run(Visited* visited) {
    if (!net_->failure().ok()) return "making it: " + net_->failure().to_string();
    const auto over = [this] { return planned_ == 0 && settled(); };
    run_until(over, seconds(120));
    if (!over() && problem_.empty()) problem_ = "somebody waits for ever: " + unsettled();
    for (Rank rank = 0; rank < params_.ranks; ++rank)
      if (net_->alive(rank)) net_->begin_end(rank);
    const auto parted = [this] {
      for (Rank rank = 0; rank < params_.ranks; ++rank)
        if (!net_->ended(rank)) return false;
      return true;
    };
    if (problem_.empty()) run_until(parted, seconds(60));
    // A stopped or parted rank may not say its end: the job's deadline is for that.
    if (problem_.empty() && fault_ <= Fault::kAlter && !parted()) problem_ = "ranks do not part";
    for (Rank rank = 0; rank < params_.ranks; ++rank) net_->end_all(rank);
    for (const auto& [cookie, rank] : open_cookies_)
      if (net_->alive(rank) && problem_.empty()) problem_ = "a frame's memory did not come home";
    if (!net_->failure().ok() && problem_.empty()) problem_ = net_->failure().to_string();
    count(visited);
    return problem_;
  }
  uint64_t turns() const { return net_->turns(); }
  Nanos time() const { return events_.now(); }

 private:
  using Pair = std::pair<Rank, Rank>;

  TlsNet::Events told() {
    return {[this](Rank at, Rank from, Bytes header, Bytes payload) { hear(at, from, header, payload); },
            [this](Rank at, uint64_t cookie) {
              if (open_cookies_.erase(cookie) != 1) wrong(at, "a frame's memory came home twice");
            },
            [this](Rank at, Rank peer, const Status& why) {
              if (!down_.insert({at, peer}).second) wrong(at, "a peer is down twice");
              if (why.ok()) wrong(at, "a peer is down for no reason");
              if (fault_ == Fault::kNone || fault_ == Fault::kStop || fault_ == Fault::kPart ||
                  fault_ == Fault::kStrangers || fault_ == Fault::kDescriptors)
                wrong(at, "a living peer is down: " + why.to_string());
            }};
  }
  void wrong(Rank at, const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("rank {}: {}", at, what);
  }

  void hear(Rank at, Rank from, Bytes header, Bytes payload) {
    if (down_.contains({at, from})) wrong(at, "a frame of a peer that is down");
    const uint64_t number = heard_[{from, at}]++;
    const auto sent = posted_.find({from, at});
    if (sent == posted_.end() || number >= sent->second.size())
      return wrong(at, "a frame that nobody posted");
    if (header != fmt::format("{}", number)) return wrong(at, "a frame out of order");
    if (payload != payload_of(from, at, number, sent->second[number])) wrong(at, "a frame that was altered");
  }

  void plan_posts(Rank from) {
    const uint64_t count = events_.rng().below(40);
    const Nanos within = events_.rng().chance(1, 2) ? milliseconds(1) : seconds(1);
    for (uint64_t i = 0; i < count; ++i) {
      ++planned_;
      events_.after(within, [this, from] {
        --planned_;
        const auto to = static_cast<Rank>(events_.rng().below(static_cast<uint64_t>(params_.ranks)));
        if (to == from || !net_->alive(from)) return;
        const size_t bytes =
            events_.rng().chance(1, 2) ? events_.rng().below(200) : events_.rng().below(150 * kKiB);
        std::vector<size_t>& sent = posted_[{from, to}];
        const std::string payload = payload_of(from, to, sent.size(), bytes);
        const std::string header = fmt::format("{}", sent.size());
        sent.push_back(bytes);
        open_cookies_[++cookie_] = from;
        net_->post(from, to, header, payload, cookie_);
      });
    }
  }

  Rank any_rank() { return static_cast<Rank>(events_.rng().below(static_cast<uint64_t>(params_.ranks))); }

  void plan_fault() {
    const Rank one = any_rank();
    const Rank other = (one + 1) % params_.ranks;
    const Nanos when = events_.delay(events_.rng().chance(1, 2) ? milliseconds(1) : seconds(1));
    ++planned_;
    events_.at(when, [this, one, other] {
      --planned_;
      switch (fault_) {
        case Fault::kNone:
        case Fault::kAlter:
          return;
        case Fault::kKill:
          return net_->kill(one);
        case Fault::kStop:  // longer than a handshake may take
          return net_->stop(one, events_.now() + seconds(1) + events_.delay(seconds(12)));
        case Fault::kPart:
          return net_->wire().part(one, other, events_.now() + events_.delay(seconds(15)));
        case Fault::kPartForGood:
          return net_->wire().part(one, other, seconds(1'000'000));
        case Fault::kStrangers:
          return flood(one);
        case Fault::kDescriptors: {
          net_->wire().limit_descriptors(one, net_->wire().descriptors(one) + events_.rng().below(3));
          ++planned_;
          return events_.at(events_.now() + milliseconds(200), [this, one] {
            --planned_;
            net_->wire().limit_descriptors(one, 1 << 20);
          });
        }
      }
    });
  }

  // Connections that say nothing, anything, or the begin of a handshake, and that end when they like.
  void flood(Rank at) {
    net::Sockets& host = net_->wire().host(net_->first_stranger());
    for (uint64_t i = 0; i < 100; ++i) {
      const int fd = host.socket(AF_INET);
      static_cast<void>(host.connect(fd, net_->door(at)));
      ++planned_;
      events_.after(milliseconds(20), [this, &host, fd] {
        --planned_;
        std::string words(events_.rng().below(300), '\0');
        for (char& each : words) each = static_cast<char>(events_.rng().below(256));
        if (events_.rng().chance(1, 2)) words = "\x16\x03\x01\x02" + words;
        if (host.failure_of(fd) == 0 && events_.rng().chance(2, 3))
          static_cast<void>(host.send(fd, words.data(), words.size()));
        if (events_.rng().chance(1, 2)) host.close(fd);
      });
    }
    ++planned_;
    events_.at(events_.now() + net::TlsTransport::kHandshakeDeadline + seconds(1), [this, at] {
      --planned_;
      if (net_->half_open(at) != 0) wrong(at, "strangers hold connections for longer than they may");
      if (net_->rejected(at) < 30) wrong(at, "strangers were not counted");
    });
  }

  // Whether each frame has arrived, or one of its ranks knows that the other one is gone.
  bool pair_settled(const Pair& pair, uint64_t posted) const {
    const auto heard = heard_.find(pair);
    if (heard != heard_.end() && heard->second == posted) return true;
    if (!net_->alive(pair.first)) return true;
    return down_.contains(pair) || (down_.contains({pair.second, pair.first}) && net_->alive(pair.second));
  }
  bool settled() const {
    return std::all_of(posted_.begin(), posted_.end(),
                       [this](const auto& each) { return pair_settled(each.first, each.second.size()); });
  }
  std::string unsettled() const {
    std::string all;
    for (const auto& [pair, sizes] : posted_) {
      if (pair_settled(pair, sizes.size())) continue;
      const auto heard = heard_.find(pair);
      all += fmt::format("{} to {}: {} of {} frames; ", pair.first, pair.second,
                         heard == heard_.end() ? 0 : heard->second, sizes.size());
    }
    return all;
  }

  template <class Done>
  void run_until(const Done& done, Nanos most) {
    const Nanos until = events_.now() + most;
    while (problem_.empty() && !done() && events_.now() < until) {
      if (!events_.step()) return;
      if (net_->longest_spin() > kSpinMax) problem_ = "a rank turns round and round, and nothing happens";
    }
  }

  void count(Visited* visited) const {
    ++visited->schedules;
    visited->frames += cookie_;
    visited->down += down_.size();
    visited->turns += net_->turns();
    visited->spin = std::max(visited->spin, net_->longest_spin());
    visited->wire.add(net_->wire().counts());
    for (Rank rank = 0; rank < params_.ranks; ++rank)
      if (net_->alive(rank)) visited->rejected += net_->rejected(rank);
  }

  const Fault fault_;
  EventQueue events_;
  TlsNet::Params params_;
  std::unique_ptr<TlsNet> net_;
  std::map<Pair, std::vector<size_t>> posted_;  // from, to: sizes
  std::map<Pair, uint64_t> heard_;              // from, to
  std::set<Pair> down_;                         // at, peer
  std::map<uint64_t, Rank> open_cookies_;
  uint64_t cookie_ = 0;
  uint64_t planned_ = 0;  // events that are still to come
  std::string problem_;
};

Visited run_all(Fault fault, uint64_t count) {
  Visited visited;
  for (uint64_t seed = 1; seed <= seeds(count); ++seed) {
    Schedule schedule(seed, fault);
    const std::string problem = schedule.run(&visited);
    EXPECT_EQ(problem, "") << "seed " << seed;
    if (!problem.empty()) break;
  }
  return visited;
}

TEST(TlsSchedules, EveryFrameArrivesWhateverTheBytesComeIn) {
  const Visited visited = run_all(Fault::kNone, 60);
  visited.print("no fault");
  EXPECT_GT(visited.wire.partial_sends, 0u);
  EXPECT_GT(visited.wire.full_windows, 0u);
  EXPECT_GT(visited.wire.short_reads, 0u);
  EXPECT_EQ(visited.down, 0u);
}

TEST(TlsSchedules, ASeedIsASchedule) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Visited a, b;
    Schedule first(seed, Fault::kKill), second(seed, Fault::kKill);
    EXPECT_EQ(first.run(&a), second.run(&b));
    EXPECT_EQ(first.turns(), second.turns());
    EXPECT_EQ(first.time(), second.time());
    EXPECT_EQ(a.wire.pieces, b.wire.pieces);
  }
}

TEST(TlsSchedules, OneBitOnTheWayEndsAConnectionAndDeliversNothing) {
  const Visited visited = run_all(Fault::kAlter, 60);
  visited.print("one bit");
  EXPECT_GT(visited.wire.altered, seeds(60) / 2);
  EXPECT_GT(visited.down, 0u);
}

TEST(TlsSchedules, CanaryInClearTheSameBitIsFound) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Visited visited;
    Schedule schedule(seed, Fault::kAlter, true);
    found += schedule.run(&visited).find("altered") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(found, 0u);
}

TEST(TlsSchedules, AKilledRankIsDownToWhoeverWaitsForIt) {
  const Visited visited = run_all(Fault::kKill, 60);
  visited.print("kill");
  EXPECT_GT(visited.down, 0u);
}

TEST(TlsSchedules, ARankThatStandsOrIsPartedForAWhileLosesNobody) {
  Visited visited = run_all(Fault::kStop, 40);
  visited.print("stop");
  visited = run_all(Fault::kPart, 40);
  visited.print("part");
}

TEST(TlsSchedules, RanksThatStayPartedAreDownToEachOtherWithinThePatience) {
  const Visited visited = run_all(Fault::kPartForGood, 40);
  visited.print("part for good");
  EXPECT_GT(visited.down, 0u);
}

TEST(TlsSchedules, StrangersAreDroppedInTimeAndHinderNobody) {
  const Visited visited = run_all(Fault::kStrangers, 20);
  visited.print("strangers");
  EXPECT_GT(visited.rejected, seeds(20) * 30);
}

TEST(TlsSchedules, WantOfDescriptorsPassesAndLosesNobody) {
  const Visited visited = run_all(Fault::kDescriptors, 40);
  visited.print("descriptors");
  EXPECT_GT(visited.wire.wants_of_descriptors, 0u);
}

}  // namespace
}  // namespace swale::sim::tls_schedules_test
