// EventQueue: the future events of a simulation, in the order of its clock. Every delay is drawn from the
// seed, and events of the same time run in the order in which they were added, so that a seed is one
// schedule.
//
// Threads: the simulation's one; a Fiber's body counts as that.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace swale::sim {

class EventQueue {
 public:
  explicit EventQueue(uint64_t seed) : rng_(seed) {}

  const Clock& clock() const { return clock_; }
  Nanos now() const { return clock_.now(); }
  Rng& rng() { return rng_; }

  void at(Nanos time, std::function<void()> act) { events_.push({time, number_++, std::move(act)}); }
  // Adds an event after a random time of 1 to `limit`.
  void after(Nanos limit, std::function<void()> act) { at(now() + delay(limit), std::move(act)); }
  Nanos delay(Nanos limit) { return 1 + static_cast<Nanos>(rng_.below(static_cast<uint64_t>(limit))); }

  // Runs the next event. False: there is none.
  bool step() {
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    clock_.advance(event.time - now());
    event.act();
    return true;
  }
  bool empty() const { return events_.empty(); }

 private:
  struct Event {
    Nanos time;
    uint64_t number;
    std::function<void()> act;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Rng rng_;
  ManualClock clock_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t number_ = 0;
};

}  // namespace swale::sim
