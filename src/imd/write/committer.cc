#include "imd/write/committer.h"

#include <utility>

#include "base/contain.h"
#include "base/log.h"

namespace swale::imd {

// The fence is checked before the record is written, so that a job which was superseded long ago writes
// nothing, and after it is durable, because only then the successor is sure to find it (generation.h).
Status Committer::commit(const EpochProtocol::Commit& commit, uint64_t epoch_id,
                         const Attributes& attributes) {
  const Nanos start = clock_->now();
  EpochEntry epoch;
  epoch.epoch = commit.epoch;
  epoch.job = static_cast<uint32_t>(manifest_.jobs.size() - 1);
  epoch.epoch_id = epoch_id;
  epoch.step = commit.step;
  epoch.time = commit.time;
  epoch.records = commit.tally.records;
  epoch.data_bytes = commit.tally.data_bytes;
  epoch.digest = commit.tally.digest;
  epoch.large = commit.large;
  SWALE_RETURN_IF_ERROR(fence_.check());
  SWALE_RETURN_IF_ERROR(append_summary(commit, epoch_id, &epoch));
  SWALE_RETURN_IF_ERROR(append_attributes(attributes, &epoch));
  SWALE_RETURN_IF_ERROR(log_.append(epoch, manifest_));
  if (const Status fenced = contain([&] { return fence_.check(); }); !fenced.ok()) {
    // All ranks are told that the epoch has failed: so it must not be there. But who has taken over may have
    // found it.
    if (fenced.code() != Code::kAborted) take_back();
    return fenced;
  }
  described_by_ = epoch.described_by;
  // The epoch exists now, whatever becomes of its statistics.
  static_cast<void>(contain([&] { keep_statistics(commit, epoch_id, start); }));
  return {};
}

void Committer::keep_statistics(const EpochProtocol::Commit& commit, uint64_t epoch_id, Nanos start) {
  EpochStats stats = commit.stats;
  const bool alone = manifest_.jobs.back().ranks == 1;
  const auto nanos = static_cast<uint64_t>(clock_->now() - start);
  stats.at(Stat::kCommitNanos) = {
      .sum = nanos, .min = alone ? nanos : 0, .max = nanos, .min_rank = alone ? 0 : 1, .max_rank = 0};
  stats_.append(epoch_id, commit.epoch, stats);
}

void Committer::take_back() {
  const Status taken = contain([&] { return log_.take_back(); });
  if (!taken.ok()) log_warn("{}: an epoch that has failed may be there: {}", directory_, taken.message());
}

Status Committer::append_summary(const EpochProtocol::Commit& commit, uint64_t epoch_id, EpochEntry* epoch) {
  if (commit.extrema.empty() || manifest_.jobs.back().ranks == 1) return {};
  if (!summaries_) {
    SWALE_ASSIGN_OR_RETURN(summaries_, create_beside_log(summary_log_path(directory_, manifest_.generation)));
  }
  const std::string summary = commit.extrema.encode_file(epoch_id);
  SWALE_RETURN_IF_ERROR(summaries_->pwrite(summaries_end_, summary));
  SWALE_RETURN_IF_ERROR(summaries_->sync());
  epoch->summary = {summaries_end_, static_cast<uint32_t>(summary.size()), manifest_.generation};
  summaries_end_ += summary.size();
  return {};
}

// The record of the epoch comes after its line, so nothing ever points to a line that is not durable.
Status Committer::append_attributes(Attributes attributes, EpochEntry* epoch) {
  epoch->described_by = described_by_;
  if (attributes.directory == kNoAttributes) {
    attributes.directory.reset();
    epoch->described_by.reset();
  }
  if (attributes.epoch == kNoAttributes) attributes.epoch.reset();
  if (attributes.empty()) return {};
  if (!manifest_.has_attributes) SWALE_RETURN_IF_ERROR(announce_attributes());
  if (!attributes_) {
    SWALE_ASSIGN_OR_RETURN(attributes_, create_beside_log(attributes_path(directory_, manifest_.generation)));
  }
  const std::string line = encode_attributes_line(epoch->epoch_id, epoch->epoch, attributes);
  SWALE_RETURN_IF_ERROR(attributes_->pwrite(attributes_end_, line));
  SWALE_RETURN_IF_ERROR(attributes_->sync());
  epoch->attributes = {attributes_end_, static_cast<uint32_t>(line.size()), manifest_.generation};
  if (attributes.directory) epoch->described_by = epoch->epoch;
  attributes_end_ += line.size();
  return {};
}

// Before the first epoch that has some: a build that does not know them must not continue the directory.
Status Committer::announce_attributes() {
  manifest_.has_attributes = true;
  const Status status = rewrite_document(device_, directory_, manifest_);
  manifest_.has_attributes = status.ok();
  return status;
}

Result<std::unique_ptr<io::File>> Committer::create_beside_log(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file, device_.open(path, io::OpenMode::kCreate));
  SWALE_RETURN_IF_ERROR(device_.sync_directory(job_folder(directory_, manifest_.generation)));
  return file;
}

void Committer::finish() {
  stats_.sync();
  manifest_.closed = true;
  manifest_.epochs_promised = log_.epochs();
  Status status = fence_.check();
  if (status.ok()) status = rewrite_document(device_, directory_, manifest_);
  if (!status.ok()) log_warn("{}", status.message());
}

}  // namespace swale::imd
