// Clock: the only way our code learns the time. Monotonic nanoseconds since an arbitrary start, not a date.
//
// Threads: all thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace swale {

using Nanos = int64_t;

inline constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

constexpr Nanos seconds(double count) { return static_cast<Nanos>(count * 1e9); }
constexpr Nanos milliseconds(int64_t count) { return count * 1'000'000; }
constexpr double to_seconds(Nanos nanos) { return static_cast<double>(nanos) * 1e-9; }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

class SystemClock : public Clock {
 public:
  Nanos now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// The process's one SystemClock.
inline const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

// Time that moves only when told: tests and simulation.
class ManualClock : public Clock {
 public:
  explicit ManualClock(Nanos start = 0) : now_(start) {}
  Nanos now() const override { return now_.load(std::memory_order_relaxed); }
  void advance(Nanos by) { now_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<Nanos> now_;
};

// The time at which a wait times out, on the clock that the deadline was made from.
struct Deadline {
  Nanos at = kForever;

  static Deadline none() { return {}; }
  static Deadline in(const Clock& clock, Nanos nanos) {
    const Nanos now = clock.now();
    return {nanos > kForever - now ? kForever : now + nanos};
  }
  bool passed(Nanos now) const { return at != kForever && now >= at; }
};

}  // namespace swale
