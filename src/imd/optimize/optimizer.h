// optimize_directory: makes a cluster of the epochs of a massive directory that no cluster has, and of those
// of the three clusters before it if they are of similar length (docs/design/clusters.md).
//
//   lock ─► claim a number ─► stripe by stripe: read, sort by hash, make series (StripePipeline), append them
//   to a directory of its own ─► counts and digests of all epochs agree? ─► end its epoch ─► write the list
//   of clusters, which makes it live ─► remove what is not
//
// With `job`, all of its ranks make the call together, each with a range of hashes: a partition of the
// cluster. The first one locks, claims and commits; counts and digests are added up. What fails on one rank
// fails on all, with its number.
//
// The epochs themselves are only read. A pass that fails or is killed leaves nothing that answers; a failed
// one empties its folder, the next pass removes it. The newest folder always stays, so that no number is
// given twice: a pass that slept would write to another's folder. A job may write to the directory
// meanwhile, or
// drop epochs: a cluster answers only for epochs that the epoch log has.
//
// Threads: one call at a time; the work is done by the process's crew, and the cluster does not depend on how
// many threads that has.
// Errors: kBusy if another pass works, at once if it is certainly alive; kCorruption if an epoch cannot be
// read, or is not what the epoch log
// says; kAborted if another pass has taken over.
// Memory: about `memory_bytes`: a pass takes as many epochs as have runs whose chunks fit. More only if one
// key has more values than that, or one epoch more runs, or `full` has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "imd/format/cluster_list.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "io/lock_file.h"
#include "net/job/job.h"

namespace swale::imd {

// What a pass is going to do.
struct OptimizePlan {
  uint64_t epochs = 0;
  uint64_t records = 0;
  uint64_t data_bytes = 0;         // of keys and values
  uint64_t cluster_bytes_max = 0;  // that the cluster takes on disk, at most
  uint64_t epochs_lost = 0;        // left alone: parts of them are lost
  uint64_t epochs_left = 0;        // for the next pass: their runs do not fit into this one's memory
};

struct OptimizeOptions {
  size_t memory_bytes = kGiB;
  bool full = false;              // one cluster of all epochs, in place of all others
  uint64_t epochs_min = 1;        // with fewer to copy there is nothing to do
  uint32_t threads = 0;           // that make series; 0: one for each processor
  uint64_t rate_bytes_per_s = 0;  // read and written by all ranks, at most; 0: no limit
  net::Job* job = nullptr;        // whose ranks share the work; all options are the same on all of them
  const Clock* clock = &system_clock();
  // Waits so long, or returns false to end the pass: called after each stripe, also for no time. Empty: this
  // thread sleeps.
  std::function<bool(Nanos)> pause = {};
  // Of its lock. A pass that may be asleep, or on a host that is gone, is watched for its lease.
  io::LeaseOptions lease = {};
  // Called by the first rank before anything is written; a failure ends the pass. May be empty, as
  // `progress`, which is called by the first rank and counts its own part alone.
  std::function<Status(const OptimizePlan&)> approve = {};
  std::function<void(uint64_t done_records, uint64_t records)> progress = {};
};

struct OptimizeReport {
  OptimizePlan plan;
  uint32_t number = 0;  // of the cluster; 0: there was nothing to do
  uint64_t series = 0;
  uint64_t bytes = 0;  // of these, with their keys
  uint64_t stripes = 0;
  uint64_t runs = 0;  // that were given to the writer; those of memtables it makes itself
};

constexpr size_t kOptimizeMemoryMin = 32 * kMiB;

Result<OptimizeReport> optimize_directory(io::Device& device, const std::string& directory,
                                          const OptimizeOptions& options);

}  // namespace swale::imd
