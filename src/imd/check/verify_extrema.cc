#include "imd/check/verify_extrema.h"

#include <algorithm>
#include <utility>

namespace swale::imd {
namespace {

Status wrong(const PartitionLogs& logs, const run::SegmentRecord& segment, std::string_view what) {
  return corruption("{}: offset {}: extrema of epoch {}, way {}: {}", logs.index->path(),
                    segment.index_offset, segment.epoch, segment.way, what);
}

}  // namespace

uint64_t ExtremaVerifier::begin(const PartitionLogs& logs, const EpochEntry& epoch,
                                const ProblemFn& problem) {
  const size_t fields = manifest_.schema.indexed.size();
  groups_.clear();
  active_ = false;
  if (fields == 0) return 0;
  uint64_t bytes = 0;
  uint64_t covered = 0;
  const uint64_t records = logs.records_of(epoch.epoch);
  for (const run::SegmentRecord& segment : logs.extrema_of(epoch.epoch)) {
    covered += segment.records;
    Result<run::GroupContent> group = read_group(logs, segment, &bytes);
    if (!group.ok()) {
      problem(group.status());
      return bytes;
    }
    groups_.push_back(std::move(*group));
  }
  if (covered == 0 && records != 0) return bytes;  // of a build that writes none
  if (covered != records) {
    problem(corruption("{}: the extrema of epoch {} are of {} records, the index has {}", logs.index->path(),
                       epoch.epoch, covered, records));
    return bytes;
  }
  const PartitionLogs::BlockRange range = logs.blocks_of(epoch.epoch);
  // Memory for the blocks that there are, not for those that a number in the index names. If some are
  // missing, the walk over the data log tells it.
  const Result<uint64_t> file_bytes = logs.data->size();
  if (!file_bytes.ok() || (range.first + range.count) * run::kBlockBytes > *file_bytes) return bytes;
  first_block_ = range.first;
  actual_.assign(fields, std::vector<run::Extrema>(range.count));
  totals_.assign(fields, {});
  active_ = true;
  return bytes;
}

Result<run::GroupContent> ExtremaVerifier::read_group(const PartitionLogs& logs,
                                                      const run::SegmentRecord& segment, uint64_t* bytes) {
  const std::string& path = logs.index->path();
  SWALE_RETURN_IF_ERROR(run::check_extrema_segment(segment, logs.index_end, path));
  std::vector<char> all(run::segment_bytes(segment));
  ReadQueue reads(files_.options.reads_in_flight_max);
  reads.add(*logs.index, segment.index_offset, all, 0);
  SWALE_RETURN_IF_ERROR(reads.finish());
  files_.counters.reads.add();
  files_.counters.bytes_read.add(all.size());
  *bytes += all.size();
  SWALE_ASSIGN_OR_RETURN(
      run::GroupContent group,
      run::decode_extrema_group(segment, logs.id.partition, Bytes(all.data(), all.size()), path));
  SWALE_RETURN_IF_ERROR(run::check_group_fields(group.head, manifest_.schema.indexed, path));
  return group;
}

void ExtremaVerifier::record(const run::ScannedRecord& record) {
  if (!active_) return;
  for (size_t f = 0; f < totals_.size(); ++f) {
    const run::FieldValue number = run::read_field(manifest_.schema.indexed[f], record.fields());
    totals_[f].add(number);
    if (number.kind == run::FieldValue::Kind::kNumber)
      actual_[f][record.block - first_block_].add(number.key);
  }
}

void ExtremaVerifier::finish(const PartitionLogs& logs, const EpochEntry& epoch, bool whole,
                             const ProblemFn& problem) {
  if (!std::exchange(active_, false) || !whole) return;
  Status status = compare_totals(logs, epoch);
  for (size_t i = 0; i < groups_.size() && status.ok(); ++i) status = compare_group(logs, groups_[i]);
  if (!status.ok()) return problem(status);
  EpochState& state = epochs_[epoch.epoch];
  state.summary.merge(ExtremaSummary::of(logs.id.partition, totals_));
  ++state.partitions;
}

Status ExtremaVerifier::compare_totals(const PartitionLogs& logs, const EpochEntry& epoch) const {
  for (size_t f = 0; f < totals_.size(); ++f) {
    run::FieldTotals said;
    for (const run::GroupContent& group : groups_) said.add(group.head.fields[f].totals);
    if (said == totals_[f]) continue;
    const run::FieldPlace& place = manifest_.schema.indexed[f];
    const auto text = [&](const run::FieldTotals& totals) {
      return fmt::format("{} to {}, {} NaN, {} absent", run::text_of(place.type, totals.extrema.minimum),
                         run::text_of(place.type, totals.extrema.maximum), totals.nans, totals.absent);
    };
    return corruption("{}: extrema of epoch {}, field \"{}\": {}; the records have {}", logs.index->path(),
                      epoch.epoch, place.name, text(said), text(totals_[f]));
  }
  return {};
}

Status ExtremaVerifier::compare_group(const PartitionLogs& logs, const run::GroupContent& group) const {
  const PartitionLogs::BlockRange range = logs.blocks_of(group.head.segment.epoch);
  for (const run::GroupRun& run : group.head.runs) {
    if (run.first_block < range.first || run.first_block + run.blocks > range.first + range.count) {
      return wrong(logs, group.head.segment, "a run lies outside of the epoch's blocks");
    }
  }
  SWALE_RETURN_IF_ERROR(compare_runs(logs, group));
  for (size_t list = 0; list < group.lists.size(); ++list)
    SWALE_RETURN_IF_ERROR(compare_list(logs, group, list));
  return {};
}

Status ExtremaVerifier::compare_runs(const PartitionLogs& logs, const run::GroupContent& group) const {
  for (const run::GroupRun& run : group.head.runs) {
    for (size_t f = 0; f < totals_.size(); ++f) {
      run::Extrema extrema;
      for (uint32_t i = 0; i < run.blocks; ++i) extrema.add(actual(f, run.first_block + i));
      if (extrema != run.extrema[f]) {
        return wrong(logs, group.head.segment,
                     fmt::format("field \"{}\": those of the run at block {} are not its records'",
                                 manifest_.schema.indexed[f].name, run.first_block));
      }
    }
  }
  return {};
}

Status ExtremaVerifier::compare_list(const PartitionLogs& logs, const run::GroupContent& group,
                                     size_t list) const {
  const size_t field = list / 2;
  const auto which = static_cast<run::Extreme>(list % 2);
  const auto problem = [&](BlockNumber block, std::string_view what) {
    return wrong(logs, group.head.segment,
                 fmt::format("field \"{}\", {}: block {} {}", manifest_.schema.indexed[field].name,
                             which == run::Extreme::kLargest ? "maxima" : "minima", block, what));
  };
  std::vector<bool> named(group.head.segment.value_bytes);
  for (const run::PieceEntry& entry : group.lists[list]) {
    const run::GroupRun& run = group.head.run_of(entry.block);
    const BlockNumber block = run.first_block + (entry.block - run.group_block);
    const run::Extrema& records = actual(field, block);
    if (named[entry.block]) return problem(block, "is named twice");
    named[entry.block] = true;
    if (records.empty()) return problem(block, "is named but has no number");
    if (run::score_of(which, records.best(which)) > run::score_of(which, entry.bound)) {
      return problem(block, "has a record beyond the bound that excludes it");
    }
  }
  for (const run::GroupRun& run : group.head.runs) {
    for (uint32_t i = 0; i < run.blocks; ++i) {
      if (!named[run.group_block + i] && !actual(field, run.first_block + i).empty()) {
        return problem(run.first_block + i, "has records but is not named");
      }
    }
  }
  return {};
}

void ExtremaVerifier::check_summaries(const ProblemFn& problem) {
  if (manifest_.schema.indexed.empty()) return;
  for (const EpochEntry& epoch : manifest_.epochs) {
    const EpochState& state = epochs_[epoch.epoch];
    const uint32_t partitions = manifest_.jobs[epoch.job].ranks;
    if (partitions == 1 || state.partitions != partitions) continue;
    const Result<ExtremaSummary> summary = read_summary(files_.device, files_.directory, epoch);
    if (!summary.ok()) {
      problem(summary.status().with_context(fmt::format("summary of the extrema of epoch {}", epoch.epoch)));
    } else if (*summary != state.summary) {
      problem(corruption("{}: offset {}: is not the summary of the extrema of epoch {} in the index logs",
                         summary_log_path(files_.directory, epoch.summary.job), epoch.summary.offset,
                         epoch.epoch));
    }
  }
}

}  // namespace swale::imd
