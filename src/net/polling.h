// Polling: whether a thread that has nothing to do looks again at once or goes to sleep. A sleep and a wake-up cost 5 us on
// a busy machine and some 50 us on an idle virtual one, each side; an answer from another process takes 3 us. So a thread
// that expects a frame soon polls for `budget`, and then sleeps. It never polls longer than that for one expectation, and
// where polling does not pay it is not repeated: after n expectations in a row that it did not meet, the next 2^(n-1) are
// slept through, at most kSkippedMax.
//
//   begin    a frame is expected          met        it has come
//   go_on    nothing yet: poll again?     give_up    nobody waits any more
//
// Invariant: whatever comes, at most budget of polling an expectation; of expectations that are never met in time, one
//   of kSkippedMax + 1 is polled for in the long run.
// Source: the halt polling of Linux's KVM, which adapts its budget; here the budget stays, since an answer that comes late
//   because the other side sleeps must be within reach for both sides to become awake.
// Threads: none; the owner serialises calls.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace swale::net {

class Polling {
 public:
  static constexpr uint32_t kSkippedMax = 64;

  explicit Polling(Nanos budget = 0) : budget_(budget) {}

  void begin(Nanos now) {
    polling_ = budget_ > 0 && skip_ == 0;
    if (skip_ > 0) --skip_;
    until_ = now + budget_;
  }
  bool go_on(Nanos now) {
    if (!polling_) return false;
    if (now < until_) return true;
    polling_ = false;
    skip_ = skipped_last_ = std::clamp(2 * skipped_last_, 1u, kSkippedMax);
    return false;
  }
  void met() {
    if (polling_) skipped_last_ = 0;
    polling_ = false;
  }
  void give_up() { polling_ = false; }

 private:
  Nanos budget_;
  Nanos until_ = 0;
  bool polling_ = false;
  uint32_t skip_ = 0;          // expectations to sleep through
  uint32_t skipped_last_ = 0;  // how many were, after the last one that was polled for in vain
};

}  // namespace swale::net
