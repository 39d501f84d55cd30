// Jobs that no manifest names any more, and the layout of a directory without a manifest, as their logs say. For repair,
// when every copy of a manifest is lost.
//
// Threads: free functions.
#pragma once

#include <cstdint>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"

namespace swale::imd {

// Stands for the name of a partitioner, which no log says. Readers ask all partitions for the keys of such a job.
inline constexpr char kLostPartitioner[] = "lost";

// Ranks, ways and who chose the partitions, as the header of any run says. The id is lost.
JobEntry job_of_logs(const Logs& logs, uint32_t number);

// Filters of single runs look the same, whether they were asked for as `papers` or a way had one run; readers need not
// know.
run::Layout layout_of_logs(const Logs& logs);

}  // namespace swale::imd
