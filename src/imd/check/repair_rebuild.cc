// Repair: index logs that are made anew from data logs.
#include <algorithm>
#include <utility>

#include "imd/check/repair_index.h"
#include "imd/check/repairer.h"
#include "imd/read/reader_partition.h"

namespace swale::imd {

Status Repairer::plan_rebuilds() {
  for (const LogId id : found_.manifest.logs()) SWALE_RETURN_IF_ERROR(plan_rebuild(id));
  return {};
}

// The epochs whose segments are all there, open, and lead to the runs.
Result<std::set<EpochNumber>> Repairer::whole_epochs(LogId id) {
  std::set<EpochNumber> whole;
  const LogFacts& facts = facts_of(logs_, id);
  if (!facts.footer) return whole;
  SWALE_ASSIGN_OR_RETURN(const auto index,
                         device_->open(index_log_path(directory_, id), io::OpenMode::kRead));
  for (const EpochEntry& epoch : found_.manifest.epochs) {
    const JobEntry& job = found_.manifest.job_of(epoch);
    const LogEpoch& here = facts.of(epoch.epoch_id);
    const std::vector<run::SegmentRecord> segments = here.agreed_segments(job, epoch.epoch);
    if (job.number != id.job || segments.empty()) continue;
    const bool all_runs = !here.runs.empty() && !losses_.in_data(epoch, id.partition);
    if (all_runs && segments.front().data_block != here.runs.front().first_block) {
      report_.found.push_back(fmt::format(
          "{}: says that epoch {} begins at block {} of the data log, it begins at {}", index->path(),
          epoch.epoch, segments.front().data_block, here.runs.front().first_block));
      continue;
    }
    const Status status = check_segments(*index, id.partition, facts.footer->end_offset, here);
    if (!status.ok() && status.code() != Code::kCorruption) return status;
    if (status.ok()) {
      whole.insert(epoch.epoch);
    } else {
      report_.found.push_back(std::string(status.message()));
    }
  }
  return whole;
}

// An index log is made anew if readers cannot open it, or if something in it that the data log still tells is
// damaged. Without its data log nothing can be done for it.
Status Repairer::plan_rebuild(LogId id) {
  const LogFacts& facts = facts_of(logs_, id);
  if (!facts.has_data) return {};
  SWALE_ASSIGN_OR_RETURN(std::set<EpochNumber> whole, whole_epochs(id));
  Manifest manifest = found_.manifest;
  manifest.lost = losses_.parts;
  const Status open = open_partition(files(), id, manifest).status();
  if (!open.ok() && open.code() != Code::kCorruption) return open;
  const auto wanted = [&](const EpochEntry& epoch) {
    const JobEntry& job = manifest.job_of(epoch);
    return job.number == id.job && !epoch.freed && id.partition < job.ranks && !whole.contains(epoch.epoch) &&
           !losses_.in_data(epoch, id.partition);
  };
  if (open.ok() && std::none_of(manifest.epochs.begin(), manifest.epochs.end(), wanted)) return {};
  if (!open.ok()) report_.found.push_back(std::string(open.message()));
  rebuilds_.push_back({id, std::move(whole), {}, {}});
  ++report_.indexes_rebuilt;
  report_.done.push_back(fmt::format("made {} anew from the data log", index_log_path(directory_, id)));
  return {};
}

// Beside the old one. Epochs that lack records in this partition get no segments, so that nothing can take
// the rest for all; what is whole in the old index is copied, at its place.
Status Repairer::write_index(Rebuild* rebuild) {
  const LogId id = rebuild->id;
  const LogFacts& facts = facts_of(logs_, id);
  const std::string path = index_log_path(directory_, id);
  rebuild->temporary = fmt::format("{}.r{:04}", path, number_);
  SWALE_ASSIGN_OR_RETURN(const auto data, device_->open(data_log_path(directory_, id), io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const auto index, device_->open(rebuild->temporary, io::OpenMode::kCreate));
  uint64_t offset = 0;
  if (!rebuild->whole.empty()) {
    offset = facts.footer->end_offset;
    SWALE_ASSIGN_OR_RETURN(const auto old, device_->open(path, io::OpenMode::kRead));
    SWALE_RETURN_IF_ERROR(copy_file_bytes(*old, 0, offset, *index));
  }
  SWALE_ASSIGN_OR_RETURN(
      IndexWriter writer,
      IndexWriter::create(*data, *index, offset, run::FooterBuilder(id.partition), found_.manifest.layout));
  BlockNumber end_block;
  for (const EpochEntry& epoch : found_.manifest.epochs) {
    if (found_.manifest.job_of(epoch).number == id.job && !epoch.freed)
      SWALE_RETURN_IF_ERROR(write_epoch_segments(*rebuild, epoch, &end_block, &writer));
  }
  return writer.finish();
}

Status Repairer::write_epoch_segments(const Rebuild& rebuild, const EpochEntry& epoch, BlockNumber* end_block,
                                      IndexWriter* writer) {
  const JobEntry& job = found_.manifest.job_of(epoch);
  const LogEpoch& here = facts_of(logs_, rebuild.id).of(epoch.epoch_id);
  const BlockNumber begin = *end_block;
  if (!here.runs.empty()) *end_block = here.runs.back().end_block();
  if (rebuild.whole.contains(epoch.epoch)) {
    std::vector<run::SegmentRecord> kept = here.segments;
    if (rebuild.tables.contains(epoch.epoch)) std::erase_if(kept, run::is_table_segment);
    SWALE_RETURN_IF_ERROR(writer->keep(kept));
    return write_table_segment(rebuild, epoch, writer);
  }
  if (losses_.in_data(epoch, rebuild.id.partition)) return {};
  std::vector<run::FieldTotals> totals;
  SWALE_RETURN_IF_ERROR(writer->add_epoch(rebuild.id.partition, job, epoch, here.runs, begin,
                                          found_.manifest.schema.indexed, &totals));
  SWALE_RETURN_IF_ERROR(writer->add_values(epoch, here.committed_values().value_or(here.values)));
  if (here.table() && !rebuild.tables.contains(epoch.epoch))
    return writer->keep({run::table_segment(*here.table(), epoch.epoch, epoch.epoch_id)});
  return write_table_segment(rebuild, epoch, writer);
}

Status Repairer::write_table_segment(const Rebuild& rebuild, const EpochEntry& epoch, IndexWriter* writer) {
  const auto made = rebuild.tables.find(epoch.epoch);
  if (made == rebuild.tables.end()) return {};
  return writer->keep({run::table_segment(made->second, epoch.epoch, epoch.epoch_id)});
}

Status Repairer::replace_indexes() {
  for (const Rebuild& rebuild : rebuilds_) {
    // Tables that the old index log names keep their places in the new file: the order matters.
    if (!rebuild.tables_temporary.empty()) {
      SWALE_RETURN_IF_ERROR(
          device_->rename(rebuild.tables_temporary, table_log_path(directory_, rebuild.id)));
      SWALE_RETURN_IF_ERROR(device_->sync_directory(log_folder(directory_, rebuild.id)));
    }
    SWALE_RETURN_IF_ERROR(device_->rename(rebuild.temporary, index_log_path(directory_, rebuild.id)));
    SWALE_RETURN_IF_ERROR(device_->sync_directory(log_folder(directory_, rebuild.id)));
  }
  return {};
}

}  // namespace swale::imd
