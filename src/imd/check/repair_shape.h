// Jobs that no manifest names any more: how many ranks and ways they had, from where their logs keep which keys. And what
// the logs show of the layout. For repair, when every copy of a manifest is lost.
//
// Threads: free functions.
#pragma once

#include <cstdint>
#include <optional>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"

namespace swale::imd {

// The least rank count, and then number of ways, that sends every key of the job's logs where it lies; at least as many
// ranks as it has logs of partitions. None: there is no such, as if a partitioner of the user's had spread the keys.
std::optional<JobEntry> guess_job(const Logs& logs, uint32_t job_number);

// Filters of single runs look the same, whether they were asked for as `papers` or a way had one run; readers need not
// know.
run::Layout guess_layout(const Logs& logs);

}  // namespace swale::imd
