#include "tier/store/serving_options.h"

#include <algorithm>

namespace swale::tier {
namespace {

constexpr uint32_t kSegments = 16;
constexpr uint32_t kElevatorSlots = 64;
constexpr uint32_t kQueueSlots = 256;
constexpr uint32_t kSlotBytes = 256 * 1024;

}  // namespace

tier::StoreOptions serving_options(const std::string& ssd_directory, const std::string& backing_directory,
                                   uint64_t log_bytes) {
  tier::StoreOptions options;
  options.ssd_directory = ssd_directory;
  options.backing_directory = backing_directory;
  options.engine.segment_count = kSegments;
  options.engine.segment_bytes = log_bytes / kSegments / 4096 * 4096;
  options.engine.queue_slots = kElevatorSlots;
  options.queue_slots = kQueueSlots;
  options.slot_bytes =
      static_cast<uint32_t>(std::min<uint64_t>(kSlotBytes, options.engine.segment_bytes / 4));
  return options;
}

}  // namespace swale::tier
