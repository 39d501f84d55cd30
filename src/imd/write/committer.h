// Committer: rank 0's hold on the epoch log: appends the record that makes a finished epoch exist, and keeps
// the epoch's statistics, the summary of its extrema and its attributes in files of its job.
//
// Threads: one at a time. Errors: kAborted when another job has taken the directory over (generation.h);
// those of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "imd/format/attributes.h"
#include "imd/format/epoch_log.h"
#include "imd/format/generation.h"
#include "imd/format/manifest.h"
#include "imd/format/stats_log.h"
#include "imd/write/epoch_protocol.h"
#include "io/device.h"

namespace swale::imd {

class Committer {
 public:
  // `manifest` is the generation of this job, whose entry is the last of its jobs; `log` its epoch log.
  Committer(io::Device& device, std::string directory, Manifest manifest, EpochLog log, JobFence fence,
            const Clock& clock = system_clock())
      : device_(device),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        log_(std::move(log)),
        fence_(std::move(fence)),
        clock_(&clock),
        stats_(device, directory_, manifest_.generation) {
    if (!manifest_.epochs.empty()) described_by_ = manifest_.epochs.back().described_by;
    manifest_.epochs.clear();  // they are in the log
  }

  // Appends the epoch, durably. OK: it exists and stays, whatever other jobs do. kAborted: another job has
  // taken over; the epoch exists if that job has found it. Any other failure: it does not exist, unless the
  // storage fails to take its record back, or another job has taken over and found it, and the storage fails
  // to say so. `attributes`: checked by check_attributes.
  Status commit(const EpochProtocol::Commit& commit, uint64_t epoch_id, const Attributes& attributes = {});

  // No more epochs come: says so in the directory, and makes the statistics durable. Failures are logged: the
  // next job finds all epochs in the log.
  void finish();

 private:
  void take_back();
  void keep_statistics(const EpochProtocol::Commit& commit, uint64_t epoch_id, Nanos start);
  Status append_summary(const EpochProtocol::Commit& commit, uint64_t epoch_id, EpochEntry* epoch);
  Status append_attributes(Attributes attributes, EpochEntry* epoch);
  Status announce_attributes();
  Result<std::unique_ptr<io::File>> create_beside_log(const std::string& path);

  io::Device& device_;
  const std::string directory_;
  Manifest manifest_;  // without its epochs
  EpochLog log_;
  JobFence fence_;
  const Clock* clock_;
  StatsLog stats_;
  std::unique_ptr<io::File> summaries_;  // from the first one on
  uint64_t summaries_end_ = 0;
  std::unique_ptr<io::File> attributes_;  // from the first ones on
  uint64_t attributes_end_ = 0;
  std::optional<EpochNumber> described_by_;  // of the last epoch
};

}  // namespace swale::imd
