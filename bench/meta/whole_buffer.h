// A full write buffer, compressed in blocks (ours, and the paper's choice) and as a whole (what the paper
// rejects: metakv, III-A). A get from the whole one has to decode all of it, and a merge of several has to
// hold all of them decoded.
// Threads: one. Errors: die().
#pragma once

#include <nlohmann/json.hpp>

#include "bench/meta/workload.h"

namespace swale::bench {

// `canary`: expects one wrong place.
nlohmann::json whole_buffer(const Workload& workload, bool canary);

}  // namespace swale::bench
