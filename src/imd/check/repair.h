// Repair: makes the best of a massive directory that a crash or damage has left, and says what is lost. docs/design/repair.md
// has the rules.
//
//   lock ─► read all logs ─► find the manifest ─► what is lost? ─► index logs, open epochs ─► one new generation
//
// Repair is a job: it claims a number and writes files of that number only. An index log is replaced by rename, never
// written in place. So a crash of repair at any point leaves a directory that readers read as before, and that repair
// may be run on again. If there is nothing to do nothing is changed.
// What is lost is recorded in the manifest (Manifest::lost): readers answer with an error, never with a part.
// Threads: one at a time; excludes writers by the writer's lock.
// Errors: kUnsupported for anything of a newer format (nothing is changed then); kBusy; those of the device.
// Memory: about 150 bytes per run of the directory, 64 MiB of sketches, minima and maxima of 65,536 blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/write/open_environment.h"
#include "io/device.h"

namespace swale::imd {

struct RepairReport {
  std::vector<std::string> found;
  std::vector<std::string> done;  // or, in a dry run, what would be
  std::vector<std::string> lost;  // also what was lost before
  uint64_t partitions = 0;        // of the widest job
  uint64_t whole_runs = 0;
  uint64_t torn_runs = 0;
  uint64_t indexes_rebuilt = 0;
  uint64_t epochs_recovered = 0;
  uint64_t records_recovered = 0;
  uint64_t lost_parts = 0;         // of committed epochs: Manifest::lost
  uint64_t reclaimable_bytes = 0;  // made ahead by jobs that died; only reported: the files are others'
  bool manifest_rebuilt = false;
};

struct RepairOptions {
  bool dry_run = false;  // looks only, and takes no lock
  // Of reading the data logs, which is most of the work unless many index logs are made anew; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
  OpenEnvironment environment = {};
};

Result<RepairReport> repair_directory(io::Device& device, const std::string& directory,
                                      const RepairOptions& options);

}  // namespace swale::imd
