// What opening a job takes on one rank, however many there are: runs Job::open, with UCX, while the other
// ranks are played.
#pragma once

#include "bench/measure.h"
#include "net/meeting/node_map.h"

namespace swale::bench {

// Adds job_open_*: of rank 0, which is the lowest rank of its node, over a communicator and by a rendezvous
// directory.
void add_job_opening(nlohmann::json* line, const net::NodeMap& nodes);

}  // namespace swale::bench
