// Traffic: the redirector of SSDUP and SSDUP+ (ssdup-plus, section 2.3, Algorithm 1): which device the next
// stream of writes goes to. Swale's policy runs one beside itself as a byte budget.
//
// The percentage of a stream decides about the *next* stream; equality keeps the device.
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "tier/policy/request_stream.h"
#include "tier/policy/threshold.h"

namespace swale::tier {

class Traffic {
 public:
  enum class Rule : uint8_t { kWatermarks, kAdaptive };

  Traffic(Rule rule, const DetectorOptions& options);

  // Takes a write, and answers whether its stream goes to the SSD.
  bool add(FileIndex file, uint64_t offset, uint32_t length);

  bool to_ssd() const { return to_ssd_; }
  uint64_t ssd_bytes() const { return ssd_bytes_; }  // of all writes so far that add() sent to the SSD
  double percentage() const { return percentage_; }  // of the last complete stream
  double percentage_mean() const {
    return streams_ == 0 ? 0 : percentage_sum_ / static_cast<double>(streams_);
  }
  double threshold() const { return threshold_.value(); }
  uint64_t streams() const { return streams_; }

 private:
  void close(uint32_t random_factor_sum);

  Rule rule_;
  DetectorOptions options_;
  RequestStream stream_;
  AdaptiveThreshold threshold_;
  bool to_ssd_ = false;
  uint64_t ssd_bytes_ = 0;
  uint64_t streams_ = 0;
  double percentage_ = 0;
  double percentage_sum_ = 0;
};

}  // namespace swale::tier
