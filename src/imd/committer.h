// Committer: rank 0's hold on swale.json: turns a finished epoch into the manifest that makes it exist, and keeps the
// epoch's statistics beside it.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "imd/epoch_protocol.h"
#include "imd/manifest.h"
#include "imd/stats_log.h"
#include "io/device.h"

namespace swale::imd {

class Committer {
 public:
  // `job` gets its place in the manifest with the first epoch that it commits.
  Committer(io::Device& device, std::string directory, Manifest manifest, JobEntry job,
            const Clock& clock = system_clock())
      : device_(device),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        job_(std::move(job)),
        clock_(&clock),
        stats_(device, directory_) {}

  // Replaces swale.json atomically and durably. On failure the manifest on disk is the old one or, if only the
  // directory's sync failed, possibly the new one; either is whole.
  Status commit(const EpochProtocol::Commit& commit, uint64_t epoch_id);

  // No more epochs come: what is kept beside them is made durable, too.
  void finish() { stats_.sync(); }

 private:
  io::Device& device_;
  const std::string directory_;
  Manifest manifest_;  // as last committed
  const JobEntry job_;
  const Clock* clock_;
  StatsLog stats_;
  bool job_named_ = false;
};

}  // namespace swale::imd
