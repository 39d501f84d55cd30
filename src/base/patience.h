// Patience: a deadline that counts only the time in which its own process ran.
//
// Whoever waits asks over() at least every step(). What lies between two questions counts two steps at most: a process that
// was stopped (SIGSTOP, a machine that slept) or got no CPU does not blame those who may have come meanwhile, but looks
// again first. So a wait lasts `total` and at most twice that long in time that is seen to pass, and longer by every pause.
// (Liveness counts silence in the same way.)
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

  // Once over, always over.
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

// As changed.wait_for(lock, total, done), with patience.
template <typename Done>
bool wait_patiently(CondVar& changed, const MutexLock& lock, Nanos total, Done done) {
  Patience patience(total, system_clock().now());
  while (!changed.wait_for(lock, patience.step(), done)) {
    if (patience.over(system_clock().now())) return changed.wait_for(lock, 0, done);
  }
  return true;
}

}  // namespace swale
