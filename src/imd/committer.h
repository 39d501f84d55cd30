// Committer: rank 0's hold on swale.json: turns a finished epoch into the manifest that makes it exist.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "imd/epoch_protocol.h"
#include "imd/manifest.h"
#include "io/device.h"

namespace swale::imd {

class Committer {
 public:
  // `job` gets its place in the manifest with the first epoch that it commits.
  Committer(io::Device& device, std::string directory, Manifest manifest, JobEntry job)
      : device_(device),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        job_(std::move(job)) {}

  // Replaces swale.json atomically and durably. On failure the manifest on disk is the old one or, if only the
  // directory's sync failed, possibly the new one; either is whole.
  Status commit(const EpochProtocol::Commit& commit, uint64_t epoch_id);

 private:
  io::Device& device_;
  const std::string directory_;
  Manifest manifest_;  // as last committed
  const JobEntry job_;
  bool job_named_ = false;
};

}  // namespace swale::imd
