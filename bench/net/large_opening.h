// What opening a job takes on one rank, however many there are: runs Job::open, with UCX, while the other ranks are played.
#pragma once

#include "bench/measure.h"
#include "net/node_map.h"

namespace swale::bench {

// Of every allocation in C++ since the program began. UCX's own, in C, are not among them.
struct Allocations {
  uint64_t bytes = 0;  // now
  uint64_t peak_bytes = 0;
};
Allocations allocations();
void reset_peak();

// Adds job_open_*: of rank 0, which is the lowest rank of its node, over a communicator and by a rendezvous directory.
void add_job_opening(nlohmann::json* line, const net::NodeMap& nodes);

}  // namespace swale::bench
