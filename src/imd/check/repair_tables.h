// Repair: auxiliary tables of the lossy format that are made anew from records.
//
// Threads: free functions. Memory: kPairsMemory beside what walk_run needs; what goes beyond is spilled to a
// file of the caller's.
// Errors: those of the device; kCorruption for runs that are not whole any more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "imd/check/repair_log.h"
#include "imd/format/log_names.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/value_format.h"

namespace swale::imd {

// Whole runs of one epoch in one partition, and the log that has them.
struct PartitionRuns {
  std::string data_path;
  std::span<const FoundRun> runs;
};

// Makes the table of `home` from the runs of all partitions, in order, and writes it to `file` at `offset`.
// `spill_path`: a file that may be made for a while.
Result<run::ValueRange> rebuild_table(io::Device& device, const EpochEntry& epoch, PartitionNumber home,
                                      std::span<const PartitionRuns> partitions,
                                      const std::string& spill_path, io::File& file, uint64_t offset);

// Whether the table at `range` of the home's file is whole and the one of this epoch.
Status check_table(io::Device& device, const std::string& path, uint32_t ranks, PartitionNumber home,
                   const EpochEntry& epoch, const run::ValueRange& range);

}  // namespace swale::imd
