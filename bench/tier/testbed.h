// Testbed: one I/O server of the paper's testbed in virtual time: a network link, an SSD, a disk, and a tier
// engine. Two servers are alike, so that throughputs and bytes are told for both.
//
// Threads: one at a time. Deterministic.
#pragma once

#include <vector>

#include "bench/tier/workloads.h"
#include "io/disk_model.h"
#include "tier/engine/engine.h"

namespace swale::tierbench {

struct Outcome {
  double acknowledged_s = 0;  // the last acknowledgement
  double drained_s = 0;       // everything is on the disk
  uint64_t bytes = 0;         // of both servers, as all that follow
  std::vector<double> program_mb_per_s;
  tier::Stats stats;
  uint64_t shadow_ssd_bytes = 0;  // what SSDUP+ would have sent, by the order of arrival in this run
  uint64_t disk_seeks = 0;
  double disk_busy_s = 0;
  uint64_t map_extents_max = 0;
  double map_bytes_per_extent = 0;  // when the map was largest
  std::vector<double> percentages;  // of each stream
  double host_ns_per_request = 0;   // of this simulation
};

// Runs the programs together. `f14`: the second one's start counts from the end of the first.
Outcome run_together(const io::Testbed& bed, const tier::Options& options, std::vector<Program> programs,
                     bool f14);

}  // namespace swale::tierbench
