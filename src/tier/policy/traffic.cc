#include "tier/policy/traffic.h"

namespace swale::tier {

Traffic::Traffic(Rule rule, const DetectorOptions& options)
    : rule_(rule), options_(options), stream_(options.stream_requests), threshold_(options) {}

bool Traffic::add(FileIndex file, uint64_t offset, uint32_t length) {
  const bool answer = to_ssd_;
  if (answer) ssd_bytes_ += length;
  if (const auto sum = stream_.add(file, offset, length)) close(*sum);
  return answer;
}

void Traffic::close(uint32_t random_factor_sum) {
  percentage_ = static_cast<double>(random_factor_sum) / (options_.stream_requests - 1);
  percentage_sum_ += percentage_;
  ++streams_;
  if (rule_ == Rule::kWatermarks) {
    if (percentage_ > options_.watermark_high) to_ssd_ = true;
    if (percentage_ < options_.watermark_low) to_ssd_ = false;
    return;
  }
  threshold_.add(random_factor_sum);
  const double threshold = threshold_.value();
  if (percentage_ > threshold && percentage_ > options_.guard_above)
    to_ssd_ = true;
  else if (percentage_ < threshold || percentage_ < options_.guard_below)
    to_ssd_ = false;
}

}  // namespace swale::tier
