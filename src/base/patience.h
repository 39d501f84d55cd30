// Patience: a deadline that counts only the time in which its own process ran.
//
// A waiting thread calls over() at least every step(). The time between two calls counts as two steps at
// most: a process that was stopped (SIGSTOP, a suspended machine) or got no CPU looks again first, before it
// reports that others are late. So a wait lasts between `total` and twice `total` of observed time, and
// longer by every pause. (Liveness counts silence in the same way.)
//
// Threads: used by one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/mutex.h"

namespace swale {

class Patience {
 public:
  static constexpr Nanos kStepMin = milliseconds(50);
  static constexpr Nanos kStepMax = milliseconds(500);

  // kForever: never over. 0 and less: over at once.
  Patience(Nanos total, Nanos now)
      : left_(total), step_(std::clamp(total / 32, kStepMin, kStepMax)), asked_(now) {}

  Nanos step() const { return step_; }

  // True forever once it has returned true.
  bool over(Nanos now) {
    if (left_ == kForever) return false;
    left_ = std::max<Nanos>(0, left_ - std::min(std::max<Nanos>(0, now - asked_), 2 * step_));
    asked_ = now;
    return left_ == 0;
  }

 private:
  Nanos left_;
  Nanos step_;
  Nanos asked_;
};

// As changed.wait_for(lock, total, done), but with Patience in place of a deadline.
template <typename Done>
bool wait_patiently(CondVar& changed, const MutexLock& lock, Nanos total, Done done) {
  Patience patience(total, system_clock().now());
  while (!changed.wait_for(lock, patience.step(), done)) {
    if (patience.over(system_clock().now())) return changed.wait_for(lock, 0, done);
  }
  return true;
}

}  // namespace swale
