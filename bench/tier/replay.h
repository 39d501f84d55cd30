// Replay: the requests of a trace (src/tier/trace/trace_format.h) through an engine in virtual time, under
// any policy and preset.
//
// A request begins at its recorded time divided by `speed`, or later if `in_flight` requests are under way.
// There is no network: a mount is local. Files lie one after the other on the disk, in the order of their
// first request, as far as the trace writes or reads them.
//
// Threads: one at a time. Deterministic. Memory: 40 bytes a request.
#pragma once

#include <vector>

#include "io/disk_model.h"
#include "tier/engine/engine.h"
#include "tier/trace/trace_format.h"

namespace swale::tierbench {

struct ReplayOptions {
  double speed = 1;         // 0: as fast as answers come
  uint32_t in_flight = 64;  // requests of at most 256 KiB, as the mount divides them
};

struct Replayed {
  double acknowledged_s = 0;  // the last answer
  double drained_s = 0;
  uint64_t requests = 0;  // after dividing
  uint64_t read_bytes = 0;
  double wait_mean_ms = 0;  // from a request's begin to its answer
  double wait_max_ms = 0;
  tier::Stats stats;
};

Replayed replay(const io::Testbed& bed, const tier::Options& options,
                const std::vector<tier::TraceRecord>& records, const ReplayOptions& how);

}  // namespace swale::tierbench
