#include "tier/policy/threshold.h"

#include <algorithm>
#include <cmath>

namespace swale::tier {

AdaptiveThreshold::AdaptiveThreshold(const DetectorOptions& options)
    : options_(options), counts_(options.stream_requests, 0) {}

void AdaptiveThreshold::add(uint32_t random_factor_sum) {
  const double steps = options_.stream_requests - 1;
  watch_for_change(random_factor_sum / steps);
  ++counts_[random_factor_sum];
  ++streams_;
  sum_ += random_factor_sum;

  const double average = static_cast<double>(sum_) / (steps * static_cast<double>(streams_));
  const auto index =
      std::min(streams_ - 1, static_cast<uint64_t>((1 - average) * static_cast<double>(streams_)));
  uint64_t before = 0;
  for (uint32_t sum = 0; sum < counts_.size(); ++sum) {
    before += counts_[sum];
    if (before > index) {
      value_ = sum / steps;
      return;
    }
  }
}

void AdaptiveThreshold::watch_for_change(double percentage) {
  if (std::fabs(percentage - value_) > options_.change_distance) {
    ++deviating_;
    counting_ = true;
  }
  if (counted_ >= options_.change_streams) {
    if (deviating_ >= options_.change_share * counted_) clear();
    counting_ = false;
    counted_ = deviating_ = 0;
  }
  if (counting_) ++counted_;
}

void AdaptiveThreshold::clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
  streams_ = sum_ = 0;
}

}  // namespace swale::tier
