// free_directory: frees the logs of epochs that clusters have (docs/design/clusters.md, "Freeing").
//
//   locks ─► plan ─► read the clusters ─► claim a job's number ─► copy the epochs to keep into files of that
//   job ─► a generation that says so ─► unlink whole data and index logs of jobs that hold no epoch any more
//
// Files are only unlinked, never cut; value logs and pages stay, because series point into them. A job's
// logs go if each of its epochs is in a live cluster, or copied. A call that fails changes nothing and
// removes its copies; the next call ends one that was killed.
//
// Threads: one call at a time; it holds the writer's lock and that of the passes.
// Errors: kBusy names the job that writes, or the pass; kCorruption if a cluster is not what the epoch log
// says, or an epoch cannot be copied; kAborted if another job has taken over.
// Memory: about 100 MiB while epochs are copied.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "io/lock_file.h"

namespace swale::imd {

struct FreePlan {
  uint64_t epochs = 0;          // that only clusters will have
  uint64_t epochs_copied = 0;   // kept, into files of this job
  uint64_t epochs_left = 0;     // whose logs stay: no cluster has them, or one of the same job
  uint64_t copy_bytes_max = 0;  // that the copies take on disk, at most
  uint64_t files = 0;           // that go
  uint64_t bytes = 0;           // of these
  uint64_t cluster_epochs =
      0;  // of the longest cluster: a scan of a freed epoch costs so many times its bytes

  bool nothing() const { return files == 0 && epochs == 0; }
};

struct FreeOptions {
  std::string keep = "last";    // as epochs_to_keep
  bool dry_run = false;         // only plans, and takes no lock
  io::LeaseOptions lease = {};  // of its locks
  // Called before anything is written; a failure ends it. May be empty.
  std::function<Status(const FreePlan&)> approve = {};
};

struct FreeReport {
  FreePlan plan;
  uint32_t job = 0;  // the number of its own; 0: there was nothing to move
};

// Which of `epochs` epochs are to keep logs:
//   keep = "none" | part {"," part}     part = "last" | N | A ":" B (both included) | "every=" N
// kInvalidArgument names the part that is none.
Result<std::vector<bool>> epochs_to_keep(std::string_view keep, size_t epochs);

Result<FreeReport> free_directory(io::Device& device, const std::string& directory,
                                  const FreeOptions& options);

}  // namespace swale::imd
