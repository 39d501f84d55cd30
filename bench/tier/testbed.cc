#include "bench/tier/testbed.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/tier/bed.h"

namespace swale::tierbench {
namespace {

class Server {
 public:
  Server(const io::Testbed& bed, const tier::Options& options, std::vector<Program> programs, bool f14)
      : network_(bed.network_bytes_per_s),
        bed_(bed, options, [this](tier::Ticket ticket) { acknowledge(ticket); }),
        programs_(std::move(programs)),
        state_(programs_.size()),
        f14_(f14) {
    for (size_t i = 0; i < programs_.size(); ++i)
      static_cast<void>(bed_.engine().open_file(i + 1, programs_[i].base, 0));
    if (f14_) programs_[1].start = kForever;
  }

  Outcome run() {
    send();
    while (!drained_) {
      const Nanos next = std::min({network_done_, bed_.next_event(), starts()});
      if (next == kForever) stuck();
      now_ = std::max(now_, next);
      step();
    }
    return outcome();
  }

 private:
  struct State {
    size_t next = 0;
    uint32_t under_way = 0;
    uint64_t bytes = 0;
    Nanos first = -1;
    Nanos last = 0;
  };

  [[noreturn]] void stuck() {
    std::fprintf(stderr, "testbed: nothing will ever happen after %.3f s\n", to_seconds(now_));
    std::abort();
  }

  Nanos starts() const {
    Nanos next = kForever;
    for (size_t i = 0; i < programs_.size(); ++i)
      if (programs_[i].start > now_ && state_[i].next == 0) next = std::min(next, programs_[i].start);
    return next;
  }

  void step() {
    if (network_done_ <= now_) {
      network_done_ = kForever;
      const Request& request = programs_[sending_].requests[state_[sending_].next++];
      const auto file = static_cast<tier::FileIndex>(sending_);
      if (request.read) {
        bed_.read(sending_, file, request.offset, request.length, now_);
      } else {
        bed_.engine().write(sending_, file, request.offset, request.length, now_);
        bed_.carry_out(now_);
      }
    }
    bed_.step(now_);
    send();
    finish();
  }

  // One transfer at a time; the programs take turns.
  void send() {
    if (network_done_ != kForever) return;
    for (size_t k = 0; k < programs_.size(); ++k) {
      const size_t i = (turn_ + k) % programs_.size();
      const Program& program = programs_[i];
      State& state = state_[i];
      if (program.start > now_ || state.next >= program.requests.size() ||
          state.under_way >= program.processes)
        continue;
      ++state.under_way;
      if (state.first < 0) state.first = now_;
      sending_ = i;
      turn_ = (i + 1) % programs_.size();
      network_done_ = now_ + static_cast<Nanos>(program.requests[state.next].length / network_ * 1e9);
      return;
    }
  }

  void acknowledge(tier::Ticket ticket) {
    if (ticket == kDrain) {
      drained_ = true;
      return;
    }
    State& state = state_[ticket];
    --state.under_way;
    state.bytes += programs_[ticket].requests[0].length;
    state.last = now_;
    if (state.bytes % (64 * 131072) == 0) watch_map();
  }

  void watch_map() {
    const uint64_t extents = bed_.engine().map_extents();
    if (extents <= outcome_.map_extents_max) return;
    outcome_.map_extents_max = extents;
    outcome_.map_bytes_per_extent =
        static_cast<double>(bed_.engine().map_bytes()) / static_cast<double>(extents);
  }

  void finish() {
    if (f14_ && programs_[1].start == kForever && done(0)) programs_[1].start = now_ + gap_;
    if (draining_) return;
    for (size_t i = 0; i < programs_.size(); ++i)
      if (!done(i)) return;
    draining_ = true;
    acknowledged_ = now_;
    bed_.engine().drain(kDrain, now_);
    bed_.carry_out(now_);
  }

  bool done(size_t i) const {
    return state_[i].next == programs_[i].requests.size() && state_[i].under_way == 0;
  }

  Outcome outcome() {
    outcome_.acknowledged_s = to_seconds(acknowledged_);
    outcome_.drained_s = to_seconds(now_);
    for (const State& state : state_) {
      outcome_.bytes += 2 * state.bytes;
      outcome_.program_mb_per_s.push_back(2 * static_cast<double>(state.bytes) / 1e6 /
                                          to_seconds(state.last - state.first));
    }
    outcome_.stats = bed_.engine().stats();
    outcome_.shadow_ssd_bytes = 2 * bed_.engine().traffic().ssd_bytes();
    outcome_.disk_seeks = bed_.disk_use().seeks;
    outcome_.disk_busy_s = to_seconds(bed_.disk_use().busy);
    return outcome_;
  }

  static constexpr tier::Ticket kDrain = ~tier::Ticket{0} - 1;

 public:
  void set_gap(Nanos gap) { gap_ = gap; }

 private:
  const double network_;
  Bed bed_;
  std::vector<Program> programs_;
  std::vector<State> state_;
  const bool f14_;
  Nanos gap_ = 0;
  Nanos now_ = 0;
  Nanos network_done_ = kForever;
  size_t sending_ = 0;
  size_t turn_ = 0;
  bool draining_ = false;
  bool drained_ = false;
  Nanos acknowledged_ = 0;
  Outcome outcome_;
};

}  // namespace

Outcome run_together(const io::Testbed& bed, const tier::Options& options, std::vector<Program> programs,
                     bool f14) {
  const Nanos gap = f14 ? programs[1].start : 0;
  uint64_t requests = 0;
  for (const Program& program : programs) requests += program.requests.size();
  const Nanos begin = system_clock().now();
  Server server(bed, options, std::move(programs), f14);
  server.set_gap(gap);
  Outcome outcome = server.run();
  outcome.host_ns_per_request = static_cast<double>(system_clock().now() - begin) /
                                static_cast<double>(std::max<uint64_t>(1, requests));
  return outcome;
}

}  // namespace swale::tierbench
