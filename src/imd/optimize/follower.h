// follow_directory: makes clusters of a directory's epochs while a job writes them, and of the rest when the
// job has ended.
//
//   look once a `period`: has the job ended? are there `epochs_min` epochs that no cluster has? ─► a pass
//
// The job has ended when nobody holds swale.lock, when its holder is certainly dead, or when its lease has
// lapsed while we watched. Another pass at work is waited for.
// Threads: one call at a time. Errors: those of optimize_directory; kAborted if `pause` has said so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "imd/optimize/optimizer.h"
#include "io/device.h"

namespace swale::imd {

struct FollowOptions {
  OptimizeOptions pass = {};  // with epochs_min; `pause` ends the following, too
  Nanos period = seconds(1);
  // Called after each pass that has made a cluster. May be empty.
  std::function<void(const OptimizeReport&)> made = {};
};

// How many epochs a pass takes at least, unless it is the last one: fewer make more clusters, to be merged.
constexpr uint64_t kFollowEpochsMin = 16;

Status follow_directory(io::Device& device, const std::string& directory, const FollowOptions& options);

}  // namespace swale::imd
