// The counters of an I/O server: those of its tiered write buffer, and what its clients have it do.
// Threads: free functions.
#pragma once

#include <cstddef>
#include <span>

#include "base/counters.h"
#include "tier/store/store.h"

namespace swale::iond {

// What an I/O server has to do now.
struct IondLoad {
  int32_t rank = 0;
  size_t clients = 0;  // ranks that have asked something and have not closed
  size_t open_files = 0;
  size_t requests_waiting = 0;
  uint64_t refused_frames = 0;  // of its job: Job::refused_frames
  uint64_t reserved_bytes = 0;  // of memory, for requests: Iond::memory_bytes
};

std::span<const CounterRow> iond_counter_rows();
Counters iond_counters(const tier::Store& store, const IondLoad& load);

}  // namespace swale::iond
