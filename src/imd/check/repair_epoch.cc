// Repair: recovering the whole runs of epochs that were open when the last job died. They are copied into
// files of repair's own job.
#include <algorithm>
#include <limits>
#include <utility>

#include "imd/check/repair_index.h"
#include "imd/check/repair_log.h"
#include "imd/check/repairer.h"

namespace swale::imd {
namespace {

constexpr uint32_t kOpenEpochsMax = 2;  // a job fills the next epoch while it closes one

}  // namespace

// A job's logs have epochs of that job alone, each number once: what lies after the committed ones was open.
Status Repairer::plan_open_epochs() {
  const Manifest& manifest = found_.manifest;
  if (manifest.jobs.empty()) return {};
  dead_job_ = manifest.jobs.back();
  for (uint32_t i = 0; i < kOpenEpochsMax; ++i) {
    const EpochNumber number(static_cast<uint32_t>(manifest.epochs.size() + i));
    SWALE_ASSIGN_OR_RETURN(OpenEpoch open, open_epoch(number));
    if (open.epoch.records == 0) break;
    ++report_.epochs_recovered;
    report_.records_recovered += open.epoch.records;
    report_.done.push_back(
        fmt::format("recovered {} records ({} bytes) of epoch {}, which its job of {} ranks never ended; its "
                    "step and time are unknown",
                    open.epoch.records, open.epoch.data_bytes, number, dead_job_.ranks));
    report_.lost.push_back(fmt::format(
        "records of epoch {} that were in memory, on their way, or in runs that are not whole", number));
    open_.push_back(std::move(open));
  }
  if (open_.empty()) return {};
  dead_job_.id = fmt::format("{:016x}", environment_.entropy());
  return {};
}

Result<Repairer::OpenEpoch> Repairer::open_epoch(EpochNumber number) {
  OpenEpoch open;
  open.epoch.epoch = number;
  open.epoch.step = kStepUnknown;
  open.epoch.time = std::numeric_limits<double>::quiet_NaN();
  open.epoch.recovered = Recovered::kPartial;
  uint64_t left_out = 0;
  for (PartitionNumber partition(0); partition < dead_job_.ranks; ++partition) {
    std::vector<FoundRun>& kept = open.runs.emplace_back();
    for (const auto& [epoch_id, here] : facts_of(logs_, {dead_job_.number, partition}).epochs) {
      if (here.epoch != number || here.runs.empty()) continue;
      if (open.epoch.epoch_id == 0) open.epoch.epoch_id = epoch_id;
      if (open.epoch.epoch_id != epoch_id) continue;
      for (const FoundRun& run : here.runs) {
        bool whole = true;
        if (run.large.values > 0) {
          SWALE_ASSIGN_OR_RETURN(whole, has_values(dead_job_, run));
        }
        if (whole) kept.push_back(run);
        left_out += whole ? 0 : 1;
      }
    }
    add_runs(kept, &open.epoch);
  }
  if (left_out > 0) {
    report_.lost.push_back(fmt::format(
        "{} whole runs of epoch {} in which a record points to a value that is not", left_out, number));
  }
  return open;
}

// A run in which a record points to no whole value would be damage for ever.
Result<bool> Repairer::has_values(const JobEntry& job, const FoundRun& run) {
  const std::string path = data_log_path(directory_, {job.number, run.header.partition});
  SWALE_ASSIGN_OR_RETURN(const auto data, device_->open(path, io::OpenMode::kRead));
  const ReaderFiles files = this->files();
  ValueReader values(files);
  Status status;
  const auto check = [&](const run::ScannedRecord& record) {
    if (!record.large || !status.ok()) return;
    const run::ValueRule rule = record.run->values;
    const auto value = run::decode_stored_value(rule, record.value, path);
    status = value.ok() ? values.check({rule, value->pointer, job.number, run.header.epoch,
                                        run.header.epoch_id, hash_bytes(record.key)})
                        : value.status();
  };
  SWALE_RETURN_IF_ERROR(walk_run(*data, run, check, {}));
  if (!status.ok() && status.code() != Code::kCorruption) return status;
  return status.ok();
}

Status Repairer::write_open_epochs() {
  std::vector<ExtremaSummary> summaries(open_.size());
  for (PartitionNumber partition(0); !open_.empty() && partition < dead_job_.ranks; ++partition) {
    std::vector<std::vector<run::FieldTotals>> totals(open_.size());
    SWALE_RETURN_IF_ERROR(write_open_partition(partition, &totals));
    SWALE_RETURN_IF_ERROR(copy_values(partition));
    SWALE_RETURN_IF_ERROR(
        device_->sync_directory(log_folder(directory_, {number_, partition, found_.manifest.log_place})));
    for (size_t i = 0; i < open_.size(); ++i) summaries[i].merge(ExtremaSummary::of(partition, totals[i]));
  }
  return write_summaries(summaries);
}

// Both epochs, one after the other.
Status Repairer::write_open_partition(PartitionNumber partition,
                                      std::vector<std::vector<run::FieldTotals>>* totals) {
  const LogId id{number_, partition, found_.manifest.log_place};
  const LogId from{dead_job_.number, partition, id.place};
  SWALE_RETURN_IF_ERROR(io::make_directories(*device_, log_folder(directory_, id)));
  SWALE_ASSIGN_OR_RETURN(const auto data,
                         device_->open(data_log_path(directory_, id), io::OpenMode::kCreate));
  SWALE_ASSIGN_OR_RETURN(const auto index,
                         device_->open(index_log_path(directory_, id), io::OpenMode::kCreate));
  BlockNumber end_block;
  for (OpenEpoch& open : open_) {
    if (open.runs[partition].empty()) continue;
    SWALE_ASSIGN_OR_RETURN(const auto old,
                           device_->open(data_log_path(directory_, from), io::OpenMode::kRead));
    for (FoundRun& run : open.runs[partition]) {
      SWALE_RETURN_IF_ERROR(copy_run(*old, run, *data, end_block));
      run.first_block = end_block;
      end_block = run.end_block();
    }
  }
  SWALE_RETURN_IF_ERROR(data->sync());
  SWALE_ASSIGN_OR_RETURN(
      IndexWriter writer,
      IndexWriter::create(*data, *index, 0, run::FooterBuilder(partition), found_.manifest.layout));
  end_block = BlockNumber(0);
  for (size_t i = 0; i < open_.size(); ++i) {
    const std::vector<FoundRun>& runs = open_[i].runs[partition];
    (*totals)[i].resize(found_.manifest.schema.indexed.size());
    SWALE_RETURN_IF_ERROR(writer.add_epoch(partition, dead_job_, open_[i].epoch, runs, end_block,
                                           found_.manifest.schema.indexed, &(*totals)[i]));
    if (!runs.empty()) end_block = runs.back().end_block();
    SWALE_RETURN_IF_ERROR(
        writer.add_values(open_[i].epoch, facts_of(logs_, from).of(open_[i].epoch.epoch_id).values));
    if (!open_[i].tables.empty()) {
      SWALE_RETURN_IF_ERROR(writer.keep(
          {run::table_segment(open_[i].tables[partition], open_[i].epoch.epoch, open_[i].epoch.epoch_id)}));
    }
  }
  return writer.finish();
}

// To the same places, so that the pointers in records stay right.
Status Repairer::copy_values(PartitionNumber writer) {
  const bool paged = found_.manifest.layout.values() == run::ValueRule::kPaged;
  const auto path = [&](LogId id) {
    return paged ? value_pages_path(directory_, id) : value_log_path(directory_, id);
  };
  const LogId from{dead_job_.number, writer, found_.manifest.log_place};
  std::unique_ptr<io::File> copy;
  for (const OpenEpoch& open : open_) {
    const run::ValueRange range = facts_of(logs_, from).of(open.epoch.epoch_id).values;
    if (range.bytes == 0) continue;
    SWALE_ASSIGN_OR_RETURN(const auto old, device_->open(path(from), io::OpenMode::kRead));
    if (!copy) {
      SWALE_ASSIGN_OR_RETURN(copy, device_->open(path({number_, writer, from.place}), io::OpenMode::kCreate));
    }
    SWALE_RETURN_IF_ERROR(copy_file_bytes(*old, range.offset, range.bytes, *copy));
  }
  return copy ? copy->sync() : Status();
}

Status Repairer::write_summaries(const std::vector<ExtremaSummary>& summaries) {
  if (open_.empty() || found_.manifest.schema.indexed.empty() || dead_job_.ranks == 1) return {};
  SWALE_ASSIGN_OR_RETURN(const auto file,
                         device_->open(summary_log_path(directory_, number_), io::OpenMode::kCreate));
  uint64_t offset = 0;
  for (size_t i = 0; i < open_.size(); ++i) {
    const std::string bytes = summaries[i].encode_file(open_[i].epoch.epoch_id);
    SWALE_RETURN_IF_ERROR(file->pwrite(offset, bytes));
    open_[i].epoch.summary = {offset, static_cast<uint32_t>(bytes.size()), number_};
    offset += bytes.size();
  }
  SWALE_RETURN_IF_ERROR(file->sync());
  return device_->sync_directory(job_folder(directory_, number_));
}

}  // namespace swale::imd
