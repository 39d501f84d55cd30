// Finds, from the logs, jobs that no manifest names and the layout of a directory without a manifest. For
// repair, when every copy of a manifest is lost.
//
// Threads: free functions.
#pragma once

#include <cstdint>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"

namespace swale::imd {

// Replaces the name of a partitioner, which no log contains. Readers query all partitions for the keys of
// such a job.
inline constexpr char kLostPartitioner[] = "lost";

// Reads ranks, ways and the choice of partitions from the header of any run. The id is lost.
JobEntry job_of_logs(const Logs& logs, uint32_t number);

// Filters of single runs look the same for `papers` and for ways with one run; readers need not know the
// difference.
run::Layout layout_of_logs(const Logs& logs);

}  // namespace swale::imd
