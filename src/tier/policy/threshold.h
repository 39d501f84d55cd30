// AdaptiveThreshold: the random percentage above which the next stream goes to the SSD (ssdup-plus, section
// 2.3.2, Eqs. 2 and 3, Algorithm 1).
//
// The paper keeps a sorted list of all percentages. A stream of N requests has only N different ones, so a
// histogram gives the same order statistics in bounded memory.
//
// Departure: the paper's index (1 - avgper) * (N - 1) gives other thresholds than it prints. floor((1 -
// avgper) * n), at most n - 1, reproduces the printed ones if one stream was left out of the print
// (docs/design/tier.md).
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tier/policy/options.h"

namespace swale::tier {

class AdaptiveThreshold {
 public:
  explicit AdaptiveThreshold(const DetectorOptions& options);

  // Takes the sum of random factors of a complete stream.
  void add(uint32_t random_factor_sum);

  double value() const { return value_; }        // 0.5 before the first stream
  uint64_t streams() const { return streams_; }  // in the list

 private:
  void watch_for_change(double percentage);
  void clear();

  DetectorOptions options_;
  std::vector<uint64_t> counts_;  // by random factor sum
  uint64_t streams_ = 0;
  uint64_t sum_ = 0;
  double value_ = 0.5;
  // A count of streams that is open while the access pattern may be changing.
  bool counting_ = false;
  uint32_t counted_ = 0;
  uint32_t deviating_ = 0;
};

}  // namespace swale::tier
