// StoreMemory: what a store of the tiered write buffer takes of its process's memory, and its limits for a
// given amount.
//
//   queue    the slots of writes under way, mapped from the SSD
//   flush    one record for each piece between log and backing device
//   maps     which ranges of files stand in the log: 20 bytes an extent
//   files    each open file, or file with bytes in the log
//
// Under a small budget queue, maps and files shrink together; the log takes fewer small writes then, and no
// write fails. Not among them: what an opening reads of an older log's records before it has made the maps.
//
// Threads: free functions. Errors: kResourceExhausted names the holders and a sufficient limit.
#pragma once

#include <cstdint>

#include "base/memory_shares.h"
#include "tier/store/store.h"

namespace swale::tier {

uint64_t store_memory_bytes(const StoreOptions& options);
uint64_t store_memory_bytes_least(const StoreOptions& options);
// Requires store_memory_bytes_least.
StoreOptions store_options_within(const StoreOptions& options, uint64_t bytes);

// Takes the store's share, within StoreOptions::memory, and lowers the options to it.
Result<MemoryBudget::Reservation> take_store_memory(StoreOptions* options);

}  // namespace swale::tier
