#include "imd/committer.h"

#include <utility>

namespace swale::imd {

Status Committer::commit(const EpochProtocol::Commit& commit, uint64_t epoch_id) {
  const Nanos start = clock_->now();
  Manifest next = manifest_;
  if (!job_named_) next.jobs.push_back(job_);
  EpochEntry epoch;
  epoch.epoch = commit.epoch;
  epoch.job = static_cast<uint32_t>(next.jobs.size() - 1);
  epoch.epoch_id = epoch_id;
  epoch.step = commit.step;
  epoch.time = commit.time;
  epoch.records = commit.tally.records;
  epoch.data_bytes = commit.tally.data_bytes;
  epoch.digest = commit.tally.digest;
  epoch.large = commit.large;
  next.epochs.push_back(epoch);
  if (!commit.extrema.empty() && job_.ranks > 1) {
    SWALE_RETURN_IF_ERROR(
        io::replace_file(device_, summary_path(directory_, epoch_id), commit.extrema.encode_file(epoch_id)));
  }
  SWALE_RETURN_IF_ERROR(io::replace_file(device_, manifest_path(directory_), next.encode()));
  manifest_ = std::move(next);
  job_named_ = true;
  EpochStats stats = commit.stats;
  const auto nanos = static_cast<uint64_t>(clock_->now() - start);
  stats.at(Stat::kCommitNanos) = {.sum = nanos,
                                  .min = job_.ranks == 1 ? nanos : 0,
                                  .max = nanos,
                                  .min_rank = job_.ranks == 1 ? 0 : 1,
                                  .max_rank = 0};
  stats_.append(epoch_id, commit.epoch, stats);
  return {};
}

}  // namespace swale::imd
