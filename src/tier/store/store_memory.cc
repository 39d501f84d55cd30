#include "tier/store/store_memory.h"

#include <algorithm>
#include <cassert>

#include "tier/store/shared_queue.h"

namespace swale::tier {
namespace {

constexpr uint64_t kFileBytes = 1024;  // handle, descriptor, names, entries of four tables
// the engine's counters and queues, control records, the table of files' entries
constexpr uint64_t kFixedBytes = 4 * kMiB;
constexpr uint32_t kStoreSteps = 64;
constexpr uint64_t kSlotExtraBytes = SharedQueue::kHeadBytes + SharedQueue::kAlignmentMax + 4096;

StoreOptions scaled_store(const StoreOptions& options, uint64_t share) {
  const auto part = [share](uint64_t least, uint64_t all) {
    return all <= least ? all : least + (all - least) * share / kStoreSteps;
  };
  StoreOptions some = options;
  some.queue_slots = static_cast<uint32_t>(part(8, options.queue_slots));
  some.engine.map_bytes_max = part(kMiB, options.engine.map_bytes_max);
  some.open_files_max = part(1024, options.open_files_max);
  return some;
}

}  // namespace

uint64_t store_memory_bytes(const StoreOptions& options) {
  const uint64_t queue = options.queue_slots * (options.slot_bytes + kSlotExtraBytes);
  const uint64_t flush = options.engine.flush_pieces_max * (kWriteBytesMax + kSlotExtraBytes);
  return queue + flush + options.engine.map_bytes_max + options.open_files_max * kFileBytes + kFixedBytes;
}

uint64_t store_memory_bytes_least(const StoreOptions& options) {
  return store_memory_bytes(scaled_store(options, 0));
}

StoreOptions store_options_within(const StoreOptions& options, uint64_t bytes) {
  assert(bytes >= store_memory_bytes_least(options));
  uint64_t share = kStoreSteps;
  while (share > 0 && store_memory_bytes(scaled_store(options, share)) > bytes) --share;
  return scaled_store(options, share);
}

Result<MemoryBudget::Reservation> take_store_memory(StoreOptions* options) {
  const MemoryHolder holder{"tiered store", options->backing_directory};
  const uint64_t wish = store_memory_bytes(*options);
  const MemoryLimit limit = options->memory;
  MemoryShares& shares = MemoryShares::of_this_process();
  const auto take = [&]() -> Result<MemoryBudget::Reservation> {
    SWALE_ASSIGN_OR_RETURN(const uint64_t bytes,
                           shares.offer(holder, store_memory_bytes_least(*options), wish, limit));
    return shares.take(holder, bytes, limit);
  };
  Result<MemoryBudget::Reservation> share = take();
  if (!share.ok())
    return share.status().with_context(fmt::format("{}: the process's memory", options->backing_directory));
  *options = store_options_within(*options, share->bytes());
  return share;
}

}  // namespace swale::tier
