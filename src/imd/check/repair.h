// Repair: recovers what can be recovered of a massive directory after a crash or damage, and reports what is
// lost. The rules: docs/design/repair.md.
//
//   lock ─► read all logs ─► find the manifest ─► what is lost? ─► index logs, open epochs ─► one new
//   generation
//
// Repair is a job: it claims a number and writes only files of that number. It replaces an index log by
// rename, never in place. So after a crash of repair at any point, readers read the directory as before, and
// repair can run again. If there is nothing to do, nothing changes. The manifest records what is lost
// (Manifest::lost): readers return an error, never a part of the truth.
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
  std::vector<std::string> done;  // in a dry run: what would be done
  std::vector<std::string> lost;  // includes earlier losses
  uint64_t partitions = 0;        // of the job with most partitions
  uint64_t whole_runs = 0;
  uint64_t torn_runs = 0;
  uint64_t indexes_rebuilt = 0;
  uint64_t epochs_recovered = 0;
  uint64_t records_recovered = 0;
  uint64_t lost_parts = 0;         // of committed epochs: Manifest::lost
  uint64_t reclaimable_bytes = 0;  // reserved by dead jobs; only reported, as the files are theirs
  bool manifest_rebuilt = false;
};

struct RepairOptions {
  bool dry_run = false;  // only reads, and takes no lock
  // Progress of reading the data logs, most of the work unless many index logs are rebuilt; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
  OpenEnvironment environment = {};
};

Result<RepairReport> repair_directory(io::Device& device, const std::string& directory,
                                      const RepairOptions& options);

}  // namespace swale::imd
