#include "tier/policy/options.h"

#include <array>
#include <bit>
#include <utility>

namespace swale::tier {
namespace {

constexpr std::array<std::pair<Policy, std::string_view>, 6> kPolicies = {{
    {Policy::kBacking, "backing"},
    {Policy::kSsdBlocking, "ssd"},
    {Policy::kSsdOverflowing, "ssd-overflow"},
    {Policy::kSsdup, "ssdup"},
    {Policy::kSsdupPlus, "ssdup+"},
    {Policy::kSwale, "swale"},
}};

}  // namespace

Result<Policy> parse_policy(std::string_view name) {
  for (const auto& [policy, known] : kPolicies)
    if (known == name) return policy;
  return invalid_argument(
      "policy '{}' is unknown; there are backing, ssd, ssd-overflow, ssdup, ssdup+ and swale", name);
}

std::string_view policy_name(Policy policy) {
  for (const auto& [known, name] : kPolicies)
    if (known == policy) return name;
  return "?";
}

Status Options::validate() const {
  const bool all_to_ssd = policy == Policy::kSsdBlocking || policy == Policy::kSsdOverflowing;
  if (segment_count < (all_to_ssd ? 1 : 2) || segment_count > 65535)
    return invalid_argument("segment_count is {}; expected {} to 65535", segment_count, all_to_ssd ? 1 : 2);
  if (!std::has_single_bit(log_alignment) || log_alignment < 64 || log_alignment > 4096)
    return invalid_argument("log_alignment is {}; expected a power of two from 64 to 4096", log_alignment);
  if (segment_bytes < 4 * uint64_t{log_alignment})
    return invalid_argument("segment_bytes is {}; expected at least 4 times the alignment, {}", segment_bytes,
                            log_alignment);
  if (segment_bytes < 4096 || segment_bytes > (uint64_t{1} << 40))
    return invalid_argument("segment_bytes is {}; expected 4 KiB to 1 TiB", segment_bytes);
  if (segment_count * segment_bytes > (uint64_t{1} << 45))
    return invalid_argument("the log has {} segments of {} bytes; at most 32 TiB are supported",
                            segment_count, segment_bytes);
  if (segment_bytes % log_alignment != 0)
    return invalid_argument("segment_bytes is {}; expected a multiple of the alignment, {}", segment_bytes,
                            log_alignment);
  if (queue_slots < 1 || backing_depth < 1 || flush_pieces_max < 1)
    return invalid_argument("queue_slots, backing_depth and flush_pieces_max must be at least 1");
  if (detector.stream_requests < 2 || detector.stream_requests > 65536)
    return invalid_argument("stream_requests is {}; expected 2 to 65536", detector.stream_requests);
  return {};
}

}  // namespace swale::tier
