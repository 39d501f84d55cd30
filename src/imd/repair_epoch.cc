// Repair: recovering the whole runs of the epoch that was open when its job died.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "imd/extrema_summary.h"
#include "imd/repair_index.h"
#include "imd/repair_log.h"
#include "imd/repairer.h"
#include "imd/writer_core.h"

namespace swale::imd {

bool Repairer::by_the_dead_job(const EpochFacts& epoch) const {
  return dead_job_ && epoch_id(*dead_job_, epoch.epoch) == epoch.epoch_id;
}

// The one that a crashed job left behind the last committed epoch.
std::optional<EpochFacts> Repairer::open_epoch() {
  const auto number = static_cast<uint32_t>(manifest_.epochs.size());
  std::vector<EpochFacts> candidates;
  for (const auto& [id, facts] : gather_epochs(partitions_)) {
    const bool dropped =
        std::find(manifest_.dropped.begin(), manifest_.dropped.end(), id) != manifest_.dropped.end();
    if (facts.epoch != number || facts.with_runs.empty() || dropped) continue;
    candidates.push_back(facts);
  }
  const auto dead = std::find_if(candidates.begin(), candidates.end(),
                                 [this](const EpochFacts& epoch) { return by_the_dead_job(epoch); });
  if (dead != candidates.end()) return *dead;
  if (candidates.size() == 1) return candidates.front();
  if (candidates.size() > 1) {
    report_.lost.push_back(fmt::format(
        "runs of {} epochs with number {} that never were committed: which job was the last is unknown",
        candidates.size(), number));
  }
  return std::nullopt;
}

std::optional<JobEntry> Repairer::job_of(const EpochFacts& epoch) const {
  if (!manifest_.jobs.empty()) {
    const JobEntry& last = manifest_.jobs.back();
    if (epoch_id(std::stoull(last.id, nullptr, 16), epoch.epoch) == epoch.epoch_id) return last;
  }
  std::optional<JobEntry> job = epoch.shape(epoch.partitions_min(), partitions_.rbegin()->first + 1);
  if (job && by_the_dead_job(epoch)) job->id = fmt::format("{:016x}", *dead_job_);
  return job;
}

Status Repairer::recover_open_epoch(bool* recovered) {
  const std::optional<EpochFacts> facts = open_epoch();
  if (!facts) return {};
  const std::optional<JobEntry> job = job_of(*facts);
  if (!job) {
    report_.lost.push_back(fmt::format(
        "whole runs of epoch {} (id {:016x}): no number of ranks and ways explains where their keys lie",
        facts->epoch, facts->epoch_id));
    return {};
  }
  SWALE_RETURN_IF_ERROR(leave_out_runs_without_values(*facts));
  EpochEntry epoch;
  epoch.epoch = facts->epoch;
  epoch.epoch_id = facts->epoch_id;
  epoch.step = kStepUnknown;
  epoch.time = std::numeric_limits<double>::quiet_NaN();
  epoch.recovered = Recovered::kPartial;
  for (const auto& [partition, found] : partitions_)
    add_runs(runs_of(found.data, epoch.epoch_id, committed_end(found, manifest_)), &epoch);
  if (epoch.records == 0) return {};
  Manifest next = manifest_;
  if (next.jobs.empty() || next.jobs.back().id != job->id) next.jobs.push_back(*job);
  epoch.job = static_cast<uint32_t>(next.jobs.size() - 1);
  next.epochs.push_back(epoch);
  if (!dry_run_) {
    SWALE_RETURN_IF_ERROR(write_open_epoch(*job, epoch));
    SWALE_RETURN_IF_ERROR(io::replace_file(device_, manifest_path(directory_), next.encode()));
  }
  manifest_ = std::move(next);
  ++report_.epochs_recovered;
  report_.records_recovered += epoch.records;
  report_.done.push_back(
      fmt::format("recovered {} records ({} bytes) of epoch {}, which its job of {} ranks never ended; its "
                  "step and time are unknown",
                  epoch.records, epoch.data_bytes, epoch.epoch, job->ranks));
  report_.lost.push_back(fmt::format(
      "records of epoch {} that were in memory, on their way, or in runs that are not whole", epoch.epoch));
  *recovered = true;
  return {};
}

Status Repairer::write_open_epoch(const JobEntry& job, const EpochEntry& epoch) {
  ExtremaSummary summary;
  for (uint32_t partition = 0; partition < static_cast<uint32_t>(job.ranks); ++partition) {
    std::vector<run::FieldTotals> totals(manifest_.schema.indexed.size());
    SWALE_RETURN_IF_ERROR(append_epoch(partition, job, epoch, &totals));
    summary.merge(ExtremaSummary::of(partition, totals));
  }
  if (!manifest_.schema.indexed.empty() && job.ranks > 1) {
    SWALE_RETURN_IF_ERROR(io::make_directories(device_, summary_folder(directory_)));
    SWALE_RETURN_IF_ERROR(io::replace_file(device_, summary_path(directory_, epoch.epoch_id),
                                           summary.encode_file(epoch.epoch_id)));
  }
  return {};
}

// Segments and footer behind those of committed epochs; until swale.json names the epoch, they mean nothing.
Status Repairer::append_epoch(uint32_t partition, const JobEntry& job, const EpochEntry& epoch,
                              std::vector<run::FieldTotals>* totals) {
  const std::string folder = part_folder(directory_, partition);
  SWALE_RETURN_IF_ERROR(io::make_directories(device_, folder));
  SWALE_ASSIGN_OR_RETURN(const auto data,
                         device_.open(data_log_path(directory_, partition), io::OpenMode::kOpenOrCreate));
  SWALE_ASSIGN_OR_RETURN(const auto index,
                         device_.open(index_log_path(directory_, partition), io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(device_.sync_directory(folder));
  SWALE_ASSIGN_OR_RETURN(const std::vector<FoundRun> runs, lay_together(*data, partition, epoch));
  SWALE_RETURN_IF_ERROR(data->sync());
  PartitionFacts& facts = partitions_[partition];
  facts.has_data = true;
  run::FooterBuilder footer(partition);
  uint64_t offset = 0;
  if (facts.footer) {
    const auto& segments = facts.footer->segments;
    const auto tail = std::find_if(segments.begin(), segments.end(), [&](const run::SegmentRecord& segment) {
      return segment.epoch >= manifest_.epochs.size() ||
             manifest_.epochs[segment.epoch].epoch_id != segment.epoch_id;
    });
    footer =
        run::FooterBuilder::resume(partition, *facts.footer, static_cast<size_t>(tail - segments.begin()));
    offset = facts.footer->end_offset;
  }
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, index->size());
  if (size > offset) SWALE_RETURN_IF_ERROR(index->truncate(offset));
  SWALE_ASSIGN_OR_RETURN(IndexWriter writer,
                         IndexWriter::create(*data, *index, offset, std::move(footer), manifest_.layout));
  SWALE_RETURN_IF_ERROR(writer.add_epoch(partition, job, epoch, runs, committed_end(facts, manifest_),
                                         manifest_.schema.indexed, totals));
  const run::ValueRange values = values_of(facts, epoch.epoch_id);
  if (values.values != 0) {
    SWALE_ASSIGN_OR_RETURN(const auto log,
                           device_.open(value_log_path(directory_, partition), io::OpenMode::kReadWrite));
    SWALE_RETURN_IF_ERROR(log->sync());
  }
  SWALE_RETURN_IF_ERROR(writer.add_values(epoch, values));
  SWALE_RETURN_IF_ERROR(writer.finish());
  SWALE_ASSIGN_OR_RETURN(facts.footer, run::read_footer(*index, partition));
  return {};
}

// A run in which a record points to no whole value would be damage for ever.
Status Repairer::leave_out_runs_without_values(const EpochFacts& epoch) {
  uint64_t left_out = 0;
  for (auto& [partition, facts] : partitions_) {
    std::vector<FoundRun> kept;
    for (const FoundRun& run : facts.data.runs) {
      bool whole = true;
      if (run.header.epoch_id == epoch.epoch_id && run.large.values > 0) {
        SWALE_ASSIGN_OR_RETURN(const auto data,
                               device_.open(data_log_path(directory_, partition), io::OpenMode::kRead));
        SWALE_ASSIGN_OR_RETURN(whole, has_values(*data, run, epoch));
      }
      if (whole) kept.push_back(run);
      left_out += whole ? 0 : 1;
    }
    facts.data.runs = std::move(kept);
  }
  if (left_out > 0) {
    report_.lost.push_back(fmt::format(
        "{} whole runs of epoch {} in which a record points to a value that is not", left_out, epoch.epoch));
  }
  return {};
}

Result<bool> Repairer::has_values(io::File& data, const FoundRun& run, const EpochFacts& epoch) {
  Status status;
  const auto check = [&](const run::ScannedRecord& record) {
    if (!record.large || !status.ok()) return;
    const auto large = run::decode_large_value(record.value, data.path());
    status = large.ok() ? values_.check({large->pointer, epoch.epoch, epoch.epoch_id, hash_bytes(record.key)})
                        : large.status();
  };
  SWALE_RETURN_IF_ERROR(walk_run(data, run, check, {}));
  if (!status.ok() && status.code() != Code::kCorruption) return status;
  return status.ok();
}

// An epoch's blocks must be whole runs side by side: if torn ones lie between, the whole ones are copied to the end.
Result<std::vector<FoundRun>> Repairer::lay_together(io::File& data, uint32_t partition,
                                                     const EpochEntry& epoch) {
  PartitionFacts& facts = partitions_[partition];
  std::vector<FoundRun> runs = runs_of(facts.data, epoch.epoch_id, committed_end(facts, manifest_));
  const auto gap = std::adjacent_find(runs.begin(), runs.end(), [](const FoundRun& a, const FoundRun& b) {
    return a.end_block() != b.first_block;
  });
  if (gap == runs.end()) return runs;
  uint64_t at = facts.data.end_block;
  for (FoundRun& run : runs) {
    SWALE_RETURN_IF_ERROR(copy_run(data, run, at));
    run.first_block = at;
    at = run.end_block();
    facts.data.runs.push_back(run);
  }
  facts.data.end_block = at;
  return runs;
}

}  // namespace swale::imd
