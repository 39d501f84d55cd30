// Metrics: numbers that a stage keeps about itself, cheap enough for hot paths.
//
// Threads: all thread-safe, with relaxed order: a snapshot of several counters is not one consistent moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace swale {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// The largest value seen.
class HighWater {
 public:
  void update(uint64_t value) {
    uint64_t seen = value_.load(std::memory_order_relaxed);
    while (value > seen && !value_.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Metric {
  std::string name;  // "delivery.waits"
  std::string unit;  // "bytes", "ns", "" for a count
  uint64_t value = 0;
};

using MetricsSnapshot = std::vector<Metric>;

}  // namespace swale
