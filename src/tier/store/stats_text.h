// How a tiered write buffer stands, as one JSON object: what a mount and an I/O server answer to `swale tier stats`.
// Threads: free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tier/engine/engine_stats.h"

namespace swale::tier {

// What an I/O server has to do now.
struct IondLoad {
  int32_t rank = 0;
  size_t clients = 0;  // ranks that have asked something and have not closed
  size_t open_files = 0;
  size_t requests_waiting = 0;
  uint64_t refused_frames = 0;  // of its job: Job::refused_frames
  uint64_t reserved_bytes = 0;  // of memory, for requests: Iond::memory_bytes
};

// `load`: of the I/O server; null: of a mount.
std::string stats_text(const tier::Stats& stats, const IondLoad* load = nullptr);

}  // namespace swale::tier
