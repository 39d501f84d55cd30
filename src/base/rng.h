// Rng: SplitMix64. Small, fast, reproducible on every machine from its seed; not for secrets.
//
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
// Threads: one thread at a time.
#pragma once

#include <cassert>
#include <cstdint>
#include <limits>

#include "base/uint128.h"

namespace swale {

class Rng {
 public:
  using result_type = uint64_t;  // so that std::shuffle takes it

  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, n), n >= 1; off by less than n / 2^64.
  uint64_t below(uint64_t n) {
    assert(n >= 1);
    return static_cast<uint64_t>((static_cast<Uint128>(next()) * n) >> 64);
  }

  // True `numerator` times out of `denominator`.
  bool chance(uint64_t numerator, uint64_t denominator) { return below(denominator) < numerator; }

  uint64_t operator()() { return next(); }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

 private:
  uint64_t state_;
};

}  // namespace swale
