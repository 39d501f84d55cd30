// BackingCost: what the backing device is believed to need for a gap between two writes.
//
//   cost of a gap d = fixed + min(d / rate, settle + stroke * sqrt(d / capacity) + rotation)        forwards
//                   = fixed + settle + stroke * sqrt(|d| / capacity) + rotation                     backwards
//
// A disk either waits until a short gap has passed under its head, or seeks. The square root is the usual model of a
// seek (Ruemmler and Wilkes, "An introduction to disk drive modeling", 1994). Presets: docs/design/tier.md.
// Threads: a value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace swale::tier {

struct BackingCost {
  double bytes_per_second = 120e6;
  double fixed_ns = 0;
  double settle_ns = 400e3;
  double stroke_ns = 7600e3;
  double rotation_ns = 1100e3;
  double capacity_bytes = 300e9;

  double gap_ns(uint64_t from, uint64_t to) const {
    if (from == to) return 0;
    const double distance = to > from ? static_cast<double>(to - from) : static_cast<double>(from - to);
    const double seek =
        settle_ns + stroke_ns * std::sqrt(std::min(1.0, distance / capacity_bytes)) + rotation_ns;
    if (to < from) return fixed_ns + seek;
    return fixed_ns + std::min(distance / bytes_per_second * 1e9, seek);
  }
  double transfer_ns(uint64_t bytes) const { return static_cast<double>(bytes) / bytes_per_second * 1e9; }
};

}  // namespace swale::tier
