// A storm on the tree: all processes of several nodes open, stat and close one file at about the same time.
// The nodes and servers of production on one thread, with a network that delays each message by lot.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace swale::sim {

struct NamesStormParams {
  uint64_t seed = 1;
  uint32_t nodes = 4;
  uint32_t processes = 16;  // of each node
  bool combines = true;     // false: each process asks as a node of its own
  // A message takes 23.5 us on average, half more or less; the processes come within the time of one.
  Nanos spread = 23'500;
  Nanos delay_min = 11'750, delay_more = 23'500;
};

struct NamesStormResult {
  uint64_t at_root = 0;   // requests of the storm at the file's server
  uint64_t answered = 0;  // opens and stats with the right file
};

NamesStormResult run_names_storm(const NamesStormParams& params);

}  // namespace swale::sim
