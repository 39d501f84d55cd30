// What the engine itself costs, without devices: CPU of a request, and of the map beside the paper's and its
// rival's.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/tier/workloads.h"
#include "tier/policy/options.h"

namespace swale::tierbench {

// All requests of a program through an engine, with `depth` actions under way; ns a request: detector,
// redirector, queue, map, log headers and flushes. The log takes `log_bytes`.
double engine_ns_per_request(const tier::Options& options, const Program& program, size_t depth);

// Table 1 of ssdup-plus: what it costs to group the requests into streams, and to keep them in order until
// they are walked in file order: in the engine's map, in an AVL tree, in a hash table that is sorted at the
// end. Seconds for the whole program.
struct OrderCost {
  double group_s = 0;
  double map_s = 0;
  double avl_s = 0;
  double hash_sort_s = 0;
  double map_bytes_per_extent = 0;
  uint64_t checksum = 0;  // of the walks, which must agree
  bool agree = false;
};
OrderCost order_cost(const Program& program);

}  // namespace swale::tierbench
