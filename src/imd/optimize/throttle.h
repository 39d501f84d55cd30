// Throttle: how fast a pass reads and writes: each piece of work is due when the bytes before it have had
// their time. Idle time gives no credit.
//
//   due = max(due, now) + bytes / rate
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace swale::imd {

// An OptimizeOptions::pause that is never told to end.
inline bool sleep_for(Nanos nanos) {
  if (nanos > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(nanos));
  return true;
}

class Throttle {
 public:
  using PauseFn = std::function<bool(Nanos)>;  // as OptimizeOptions::pause

  // 0: no limit.
  Throttle(uint64_t bytes_per_s, const Clock& clock, PauseFn pause)
      : nanos_per_byte_(bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(bytes_per_s)),
        clock_(clock),
        pause_(pause ? std::move(pause) : sleep_for) {}

  // Call after these bytes were read and written. False: told to end.
  bool take(uint64_t bytes) {
    const Nanos now = clock_.now();
    due_ = std::max(due_, now) + static_cast<Nanos>(static_cast<double>(bytes) * nanos_per_byte_);
    return pause_(due_ - now);
  }

 private:
  const double nanos_per_byte_;
  const Clock& clock_;
  const PauseFn pause_;
  Nanos due_ = 0;
};

}  // namespace swale::imd
