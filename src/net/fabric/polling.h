// Polling: whether a thread that has nothing to do looks again at once or goes to sleep. A sleep and a
// wake-up cost 5 us on a busy machine and some 50 us on an idle virtual one, each side; an answer from
// another process takes 3 us. So a thread that expects a frame soon polls for `budget`, and then sleeps. It
// never polls longer than that for one expectation, and where polling does not pay it is not repeated: after
// n expectations in a row that it did not meet, those of the next 2^(n-1) budgets of time are slept through,
// at most kPauseMax budgets.
//
//   begin    a frame is expected          met        it has come
//   go_on    nothing yet: poll again?     give_up    nobody waits any more
//   came     another frame has come meanwhile: the budget begins anew. A message of 32 frames takes longer
//            than one, and a receiver that slept after the 20th would be woken for each of the rest.
//
// The pause is of time, not of expectations: where two ranks share a processor, so that polling is always in
// vain, some 300 gets of 20 us pass between two polls, and their 99th percentile does not have one.
//
// Invariant: at most budget of polling an expectation after its last frame; where none is ever met in time,
// at most one part in
//   kPauseMax + 1 of the time is polled in the long run.
// Source: the halt polling of Linux's KVM, which adapts its budget; here the budget stays, since an answer
// that comes late
//   because the other side sleeps must be within reach for both sides to become awake.
// Threads: none; the owner serialises calls.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace swale::net {

class Polling {
 public:
  static constexpr Nanos kPauseMax = 64;  // budgets

  explicit Polling(Nanos budget = 0) : budget_(budget) {}

  void begin(Nanos now) {
    polling_ = budget_ > 0 && now >= paused_until_;
    until_ = now + budget_;
  }
  bool go_on(Nanos now) {
    if (!polling_) return false;
    if (now < until_) return true;
    polling_ = false;
    pause_ = std::clamp(2 * pause_, budget_, kPauseMax * budget_);
    paused_until_ = now + pause_;
    return false;
  }
  void came(Nanos now) { until_ = std::max(until_, now + budget_); }
  void met() {
    if (polling_) pause_ = 0;
    polling_ = false;
  }
  void give_up() { polling_ = false; }

 private:
  Nanos budget_;
  Nanos until_ = 0;
  bool polling_ = false;
  Nanos pause_ = 0;  // after the last expectation that was polled for in vain
  Nanos paused_until_ = 0;
};

}  // namespace swale::net
