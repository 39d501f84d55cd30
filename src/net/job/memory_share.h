// What an engine takes of the memory of its process: within job.memory, if the user has set it, else within a
// default of the engine (base/memory_shares.h).
//
// Threads: as the job's calls. Errors: kResourceExhausted names the option, the holders and a sufficient
// value.
#pragma once

#include <cstdint>

#include "base/memory_shares.h"
#include "net/job/job.h"

namespace swale::net {

inline constexpr uint64_t kNoDefaultLimit = UINT64_MAX;  // each of the kind gets its wish

// `otherwise`: for all of the kind together, by default.
MemoryLimit memory_limit(const Job& job, uint64_t otherwise);

// Collective. All ranks get the smallest of their offers, or none gets anything, and all hear of it.
Result<MemoryBudget::Reservation> take_equal_share(Job& job, const MemoryHolder& holder, uint64_t least,
                                                   uint64_t wish, const MemoryLimit& limit);

}  // namespace swale::net
