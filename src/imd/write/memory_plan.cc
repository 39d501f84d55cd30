#include "imd/write/memory_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "imd/format/run_packer.h"
#include "imd/write/batcher.h"
#include "imd/write/key_stage.h"
#include "imd/write/source_home.h"
#include "run/extrema.h"
#include "run/memtable.h"
#include "run/run_builder.h"

namespace swale::imd {
namespace {

constexpr size_t kBudgetBytesMin = 4 * kMiB;
constexpr size_t kBudgetBytesAbsurd = kGiB * kGiB / kMiB;
constexpr uint32_t kWaysMax = 64;
constexpr uint32_t kOutputBuffersMin = 8;
// A record of less than 32 encoded bytes fills the entries before the arena; larger ones fill the arena
// first. An arena of 8 MiB has entries of 2 MiB: both are whole huge pages.
constexpr size_t kArenaBytesPerRecord = 32;
constexpr size_t kMemtableBytesMin = 4 * run::kEncodedRecordBytesMax;

size_t network_bytes(int32_t ranks, size_t frame_bytes, uint16_t window) {
  return static_cast<size_t>(ranks) * frame_bytes * (1 + 2 * size_t{window});
}

// Records stay with the rank that appends them, and keys go to their homes.
bool lossy(const MemoryWish& wish) {
  return wish.layout.format == run::ShuffleFormat::kLossy && wish.ranks > 1;
}

// The frames in which records wait for the hops: one is filled while others are emptied.
constexpr uint32_t kStagingFrames = 4;

size_t way_bytes(size_t arena_bytes) {
  const auto records = static_cast<uint32_t>(arena_bytes / kArenaBytesPerRecord);
  return 2 * run::Memtable::memory_bytes(arena_bytes) + run::RunScratch::memory_bytes(records);
}

// Of one way: a group of the open epoch, one of the closing epoch, and the segment that is made of one of
// them.
size_t extrema_way_bytes(size_t blocks, size_t fields) {
  return 2 * run::ExtremaGroup::memory_bytes(blocks, fields) +
         run::ExtremaSegmentBuilder::memory_bytes(blocks);
}

// Field extrema: a thirty-second, but at least what one run needs.
void plan_extrema(const MemoryWish& wish, MemoryPlan* plan) {
  if (wish.indexed_fields == 0) return;
  const size_t run_blocks = plan->memtable_bytes / run::kRunPayloadBytesMin + 2;
  const size_t block_bytes = wish.ways * extrema_way_bytes(1, wish.indexed_fields);
  const size_t blocks = std::max(wish.budget_bytes / 32 / block_bytes, run_blocks);
  plan->extrema_blocks = static_cast<uint32_t>(std::min<size_t>(blocks, run::kGroupBlocksMax));
  plan->extrema_bytes = plan->extrema_blocks * block_bytes;
}

// At most a quarter of the budget: first the window shrinks, then the frame. False: not even the least fits.
bool plan_direct_frames(const MemoryWish& wish, MemoryPlan* plan) {
  plan->frame_bytes = wish.frame_bytes;
  plan->window = wish.window;
  const size_t limit = wish.budget_bytes / 4;
  while (plan->window > 1 && network_bytes(wish.ranks, plan->frame_bytes, plan->window) > limit)
    --plan->window;
  if (network_bytes(wish.ranks, plan->frame_bytes, plan->window) > limit) {
    const size_t share = limit / network_bytes(wish.ranks, 1, plan->window) & ~size_t{kKiB - 1};
    plan->frame_bytes = std::max(share, kFrameBytesMin);
  }
  plan->frames_per_rank = 1u + plan->window;
  return network_bytes(wish.ranks, plan->frame_bytes, plan->window) <= limit;
}

// A quarter of the budget, or the least that there is: no number of ranks is too large for the frames of the
// hops. Keys are a tenth of records: an eighth, half of it for their stage.
void plan_hops(const MemoryWish& wish, MemoryPlan* plan) {
  plan->frame_bytes = wish.frame_bytes;
  plan->window = 1;
  plan->frames_per_rank = kStagingFrames;
  const size_t limit = wish.budget_bytes / (lossy(wish) ? 8 : 4);
  if (lossy(wish))
    plan->key_stage_bytes = std::clamp<size_t>(limit / 2, KeyStage::kBytesMin, KeyStage::kBytesMax);
  const size_t staging = plan->key_stage_bytes + plan->frames_per_rank * plan->frame_bytes;
  plan->hops = net::ThreeHopRouter::hops_within(*wish.nodes, limit > staging ? limit - staging : 0);
  plan->hop_bytes = net::ThreeHopRouter::buffer_bytes(*wish.nodes, *plan->hops);
  if (lossy(wish)) return;
  plan->record_bytes_max =
      std::min({run::kEncodedRecordBytesMax, net::ThreeHopRouter::message_bytes_max(*plan->hops),
                plan->frame_bytes - Batcher::kRoutedHeadBytes});
}

// Whether the record that points to a large value fits into a message.
bool holds_pointers(const MemoryWish& wish, const MemoryPlan& plan) {
  return run::kRecordHeaderBytesMax + run::kKeyBytesMax + wish.schema_bytes + run::kPointerBytes <=
         plan.record_bytes_max;
}

// What the network's frames take; none if they cannot be had.
std::optional<size_t> plan_network(const MemoryWish& wish, MemoryPlan* plan) {
  const bool direct_fits = plan_direct_frames(wish, plan);
  const bool may_route = wish.nodes != nullptr && wish.ranks > 1;
  const bool routed = may_route && (wish.route == net::RouteChoice::kThreeHop ||
                                    (wish.route == net::RouteChoice::kAuto && !direct_fits));
  if (!routed && !direct_fits) return std::nullopt;
  if (!routed) return network_bytes(wish.ranks, plan->frame_bytes, plan->window);
  plan_hops(wish, plan);
  if (!holds_pointers(wish, *plan)) return std::nullopt;
  return plan->hop_bytes + plan->key_stage_bytes + plan->frames_per_rank * plan->frame_bytes;
}

std::optional<MemoryPlan> try_plan(const MemoryWish& wish) {
  MemoryPlan plan{.ranks = wish.ranks, .ways = wish.ways};
  // Output: an eighth, in buffers that are large for the device but enough for all ways to overlap.
  plan.output_buffers = std::max(kOutputBuffersMin, 2 + wish.ways);
  plan.output_buffer_bytes =
      std::clamp<size_t>(wish.budget_bytes / 8 / plan.output_buffers, 64 * kKiB, kMiB) & ~size_t{4095};

  // Memtables: arenas of three tenths of the budget in all; a third of it is for packed runs, if blocks are
  // compressed.
  const bool packs = wish.layout.compression != Codec::kNone;
  plan.memtable_bytes = std::min<size_t>(wish.budget_bytes * 3 / 10 / ((packs ? 3 : 2) * wish.ways),
                                         run::Memtable::kArenaBytesMax);
  const size_t whole =
      plan.memtable_bytes >= Buffer::kHugePageBytes ? Buffer::kHugePageBytes : Buffer::kPageBytes;
  plan.memtable_bytes = plan.memtable_bytes / whole * whole;
  if (wish.gives_runs) plan.memtable_bytes = round_up(kMemtableBytesMin, Buffer::kPageBytes);
  plan.memtable_records = static_cast<uint32_t>(plan.memtable_bytes / kArenaBytesPerRecord);

  const std::optional<size_t> network = plan_network(wish, &plan);
  plan_extrema(wish, &plan);
  if (packs) plan.packing_bytes = wish.ways * RunPacker::memory_bytes(plan.memtable_bytes);
  // A quarter: 2.95 bytes a key, and what goes beyond is spilled.
  if (lossy(wish)) plan.source_bytes = std::max(wish.budget_bytes / 4, kSourceHomeBytesMin);
  const size_t fixed = network.value_or(0) + plan.source_bytes +
                       plan.output_buffers * plan.output_buffer_bytes +
                       wish.ways * way_bytes(plan.memtable_bytes) + plan.extrema_bytes + plan.packing_bytes;
  plan.other_bytes = wish.budget_bytes / 16;
  const size_t run_sketch_bytes =
      run::sketch_memory_bytes(wish.gives_runs ? run::kRunRecordsMax : plan.memtable_records,
                               run::kRunBlocksMax, run::RunKind::kVariable, wish.layout.filtered());
  const size_t sketch_bytes_min = std::max<size_t>(
      wish.budget_bytes / 32, 2 * wish.ways * round_up(run_sketch_bytes, Buffer::kPageBytes));
  if (!network || plan.memtable_bytes < kMemtableBytesMin ||
      fixed + plan.other_bytes + sketch_bytes_min >= wish.budget_bytes) {
    return std::nullopt;
  }
  plan.sketch_bytes = wish.budget_bytes - fixed - plan.other_bytes;
  return plan;
}

// The first budget that is enough, from `bytes` upwards by an eighth each.
size_t enough_from(MemoryWish wish, size_t bytes) {
  wish.budget_bytes = std::max(bytes, kBudgetBytesMin);
  while (wish.budget_bytes < kBudgetBytesAbsurd && !try_plan(wish))
    wish.budget_bytes += wish.budget_bytes / 8;
  return wish.budget_bytes;
}

}  // namespace

Result<MemoryPlan> plan_memory(const MemoryWish& wish) {
  if (wish.ranks < 1 || wish.ways < 1 || wish.ways > kWaysMax || wish.window < 1 ||
      wish.frame_bytes < kFrameBytesMin || wish.frame_bytes > kFrameBytesMax) {
    return invalid_argument(
        "{} ranks, imd.ways = {}, imd.window = {}, imd.frame_bytes = {}: all must be at least 1, ways at "
        "most {}, and a frame has {} to {} bytes",
        wish.ranks, wish.ways, wish.window, wish.frame_bytes, kWaysMax, kFrameBytesMin, kFrameBytesMax);
  }
  if (wish.budget_bytes >= kBudgetBytesMin) {
    if (const std::optional<MemoryPlan> plan = try_plan(wish)) return *plan;
  }
  return error(Code::kResourceExhausted, Scope::kOperation,
               "imd.memory = {} bytes is too small for {} ranks with {} routing and imd.ways = {}; give at "
               "least {}",
               wish.budget_bytes, wish.ranks,
               wish.nodes == nullptr || wish.route == net::RouteChoice::kDirect ? "direct" : "three-hop",
               wish.ways, enough_from(wish, wish.budget_bytes));
}

size_t MemoryPlan::key_message_bytes_max() const {
  if (!hops) return 0;
  return std::min(net::ThreeHopRouter::message_bytes_max(*hops), frame_bytes - Batcher::kRoutedHeadBytes);
}

size_t least_budget_bytes(const MemoryWish& wish) { return enough_from(wish, kBudgetBytesMin); }

Result<std::vector<MemoryBudget::Reservation>> reserve(MemoryBudget& budget, const MemoryPlan& plan) {
  const size_t frames = (plan.hops ? 1 : static_cast<size_t>(plan.ranks)) * plan.frame_bytes;
  const MemoryBudget::Row stages[] = {
      {"stacks, queues, messages", plan.other_bytes},
      {"sketches", plan.sketch_bytes},
      {"extrema of indexed fields", plan.extrema_bytes},
      {"compressed runs", plan.packing_bytes},
      {"keys at their home", plan.source_bytes},
      {"output buffers", plan.output_buffers * plan.output_buffer_bytes},
      {"memtables and sorting space", plan.ways * way_bytes(plan.memtable_bytes)},
      {"delivery queue", plan.hops ? 0 : frames * plan.window},
      {"frames of three hops", plan.hop_bytes},
      {"keys for their homes", plan.key_stage_bytes},
      {"frames to send", frames * plan.frames_per_rank},
  };
  std::vector<MemoryBudget::Reservation> reservations;
  for (const MemoryBudget::Row& stage : stages) {
    if (stage.bytes == 0) continue;
    SWALE_ASSIGN_OR_RETURN(MemoryBudget::Reservation reservation, budget.reserve(stage.name, stage.bytes));
    reservations.push_back(std::move(reservation));
  }
  return reservations;
}

}  // namespace swale::imd
