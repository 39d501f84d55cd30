#include "tier/store/stats_text.h"

#include <fmt/format.h>

namespace swale::tier {

std::string stats_text(const tier::Stats& stats, const IondLoad* load) {
  std::string text = "{";
  const auto add = [&text](std::string_view name, const auto& value) {
    text += fmt::format("{}\"{}\":{}", text.size() > 1 ? "," : "", name, value);
  };
  add("writes", stats.writes);
  add("write_bytes", stats.write_bytes);
  add("ssd_bytes", stats.ssd_bytes);
  add("direct_bytes", stats.direct_bytes);
  add("flushed_bytes", stats.flushed_bytes);
  add("gap_filled_bytes", stats.gap_filled_bytes);
  add("log_waits", stats.log_waits);
  add("slot_waits", stats.slot_waits);
  add("overlap_waits", stats.overlap_waits);
  add("overflows", stats.overflows);
  add("erasures", stats.erasures);
  add("slots_written", stats.slots_written);
  add("append_errors", stats.append_errors);
  add("flush_errors", stats.flush_errors);
  add("direct_errors", stats.direct_errors);
  add("lost_bytes", stats.lost_bytes);
  add("paused_ns", stats.paused_ns);
  add("stalled_ns", stats.stalled_ns);
  add("log_capacity_bytes", stats.log_capacity_bytes);
  add("log_used_bytes", stats.log_used_bytes);
  add("dirty_bytes", stats.dirty_bytes);
  add("elevator_depth", stats.elevator_depth);
  add("waiting", stats.waiting);
  add("random_percentage", stats.random_percentage);
  add("random_percentage_mean", stats.random_percentage_mean);
  add("threshold", stats.threshold);
  add("flushing", stats.flushing);
  add("log_failed", stats.log_failed);
  add("direct_ns_per_byte", stats.direct_ns_per_byte);
  add("flush_ns_per_byte", stats.flush_ns_per_byte);
  add("reserved_bytes", stats.reserved_bytes + (load != nullptr ? load->reserved_bytes : 0));
  if (load != nullptr) {
    add("rank", load->rank);
    add("clients", load->clients);
    add("open_files", load->open_files);
    add("requests_waiting", load->requests_waiting);
    add("refused_frames", load->refused_frames);
  }
  return text + "}";
}

}  // namespace swale::tier
