// MemoryPlan: how one rank's budget is divided among the stages, downstream first, so that no stage can
// starve the one after it. Pure arithmetic; docs/guide/memory.md shows it for several job sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "net/job/job_options.h"
#include "net/route/threehop_router.h"
#include "run/layout.h"
#include "run/record.h"

namespace swale::imd {

struct MemoryPlan {
  int32_t ranks = 1;  // of the job
  uint32_t ways = 1;
  // By three hops: the frames of the hops; those below are then for the records on their way to them, for no
  // peer of their own. Records of more than record_bytes_max bytes, with the longest header, go to the value
  // log.
  std::optional<net::ThreeHopRouter::Hops> hops = {};
  size_t hop_bytes = 0;
  size_t record_bytes_max = run::kEncodedRecordBytesMax;
  size_t key_stage_bytes = 0;  // keys on their way to the hops, in the lossy format
  // Sending and receiving: per peer one frame being filled, `window` on their way, `window` in the delivery
  // queue.
  size_t frame_bytes = 0;
  uint16_t window = 0;
  uint32_t frames_per_rank = 0;
  // Storage side.
  uint32_t output_buffers = 0;
  size_t output_buffer_bytes = 0;
  size_t memtable_bytes = 0;  // arena of one memtable; two per way
  uint32_t memtable_records = 0;
  size_t sketch_bytes = 0;
  uint32_t extrema_blocks = 0;  // of one group of field extrema; 0: no fields are indexed
  size_t extrema_bytes = 0;     // over all ways
  size_t packing_bytes = 0;     // over all ways: compressed runs and the compressors' own
  size_t source_bytes = 0;      // keys of two epochs at their home, in the lossy format
  // What has no buffer of its own: stacks, queues, messages, the transport's state for each peer.
  size_t other_bytes = 0;

  // What of a list of keys fits into a message of the hops, and into the frame before them.
  size_t key_message_bytes_max() const;
};

// A frame holds the largest record.
inline constexpr size_t kFrameBytesMin = round_up(run::kEncodedRecordBytesMax, kKiB);
inline constexpr size_t kFrameBytesMax = 32 * kKiB;  // what transports are tested and tuned for

struct MemoryWish {
  size_t budget_bytes = 0;
  int32_t ranks = 1;
  uint32_t ways = 1;
  size_t frame_bytes = 32 * kKiB;  // upper limits: the plan takes less where the budget asks for it
  uint16_t window = 4;
  uint32_t indexed_fields = 0;
  run::Layout layout = {};
  // kAuto: by three hops if direct frames took more than a quarter of the budget. Without nodes: directly.
  net::RouteChoice route = net::RouteChoice::kAuto;
  std::shared_ptr<const net::NodeMap> nodes = {};
  size_t schema_bytes = 0;  // what of a large value stands in its record
  bool gives_runs = false;  // all records come by Writer::append_run: memtables are as small as they can be
};

// kResourceExhausted, with the smallest budget that would do, when the wish cannot be met.
Result<MemoryPlan> plan_memory(const MemoryWish& wish);

// The smallest budget with which the wish could be met.
size_t least_budget_bytes(const MemoryWish& wish);

// Charges every stage of the plan to the budget, the last stage first; the reservations last as long as the
// pipeline. kResourceExhausted names the stage that does not fit.
Result<std::vector<MemoryBudget::Reservation>> reserve(MemoryBudget& budget, const MemoryPlan& plan);

}  // namespace swale::imd
