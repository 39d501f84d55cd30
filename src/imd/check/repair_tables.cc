#include "imd/check/repair_tables.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "imd/check/repairer.h"
#include "imd/format/table_params.h"
#include "io/fresh_file.h"
#include "source/batch.h"
#include "source/table_builder.h"

namespace swale::imd {
namespace {

constexpr size_t kPairsMemory = 32 * kMiB;
constexpr size_t kBatchPairs = 4096;

// Takes keys of one home from one partition after the other.
class PairGatherer {
 public:
  PairGatherer(source::PairStore& store, EpochNumber epoch, uint32_t ranks, PartitionNumber home)
      : store_(store), epoch_(epoch), ranks_(ranks), home_(home), scratch_(kBatchPairs) {}

  Status take(io::File& data, const FoundRun& run) {
    Status status;
    SWALE_RETURN_IF_ERROR(walk_run(data, run,
                                   [&](const run::ScannedRecord& record) {
                                     const HashChoice home = choose(hash_bytes(record.key), ranks_);
                                     if (home.index != home_ || !status.ok()) return;
                                     pairs_.push_back(source::make_pair(source::kept_hash(home.rest), 0));
                                     if (pairs_.size() == kBatchPairs) status = flush(run.header.partition);
                                   },
                                   {}));
    return status.ok() ? flush(run.header.partition) : status;
  }

 private:
  Status flush(PartitionNumber partition) {
    if (pairs_.empty()) return {};
    batch_.clear();
    source::encode_batch(epoch_, partition, pairs_, std::span(scratch_).first(pairs_.size()), &batch_);
    pairs_.clear();
    return store_.add(batch_);
  }

  source::PairStore& store_;
  const EpochNumber epoch_;
  const uint32_t ranks_;
  const PartitionNumber home_;
  std::vector<source::Pair> pairs_;
  std::vector<source::Pair> scratch_;
  std::string batch_;
};

}  // namespace

Result<run::ValueRange> rebuild_table(io::Device& device, const EpochEntry& epoch, PartitionNumber home,
                                      std::span<const PartitionRuns> partitions,
                                      const std::string& spill_path, io::File& file, uint64_t offset) {
  const auto ranks = static_cast<uint32_t>(partitions.size());
  SWALE_ASSIGN_OR_RETURN(const auto spill, io::create_fresh(device, spill_path));
  SWALE_ASSIGN_OR_RETURN(
      source::PairStore store,
      source::PairStore::create(
          {.epoch = epoch.epoch, .sources = ranks, .memory_limit = kPairsMemory, .spill_file = spill.get()}));
  PairGatherer gatherer(store, epoch.epoch, ranks, home);
  for (const PartitionRuns& partition : partitions) {
    if (partition.runs.empty()) continue;
    SWALE_ASSIGN_OR_RETURN(const auto data, device.open(partition.data_path, io::OpenMode::kRead));
    for (const FoundRun& run : partition.runs) SWALE_RETURN_IF_ERROR(gatherer.take(*data, run));
  }
  run::ValueRange range{.offset = offset, .bytes = 0, .values = 0};
  const source::TableParams params = table_params(ranks, home, epoch.epoch, epoch.epoch_id);
  SWALE_ASSIGN_OR_RETURN(const source::TableSummary summary,
                         source::build_table(&store, params, [&](Bytes bytes) {
                           SWALE_RETURN_IF_ERROR(file.pwrite(range.end_offset(), bytes));
                           range.bytes += bytes.size();
                           return ok_status();
                         }));
  range.values = summary.pairs;
  static_cast<void>(device.remove(spill_path));
  return range;
}

Status check_table(io::Device& device, const std::string& path, uint32_t ranks, PartitionNumber home,
                   const EpochEntry& epoch, const run::ValueRange& range) {
  const auto file = device.open(path, io::OpenMode::kRead);
  if (file.status().code() == Code::kNotFound) return corruption("{}: is missing", path);
  SWALE_RETURN_IF_ERROR(file.status());
  SWALE_ASSIGN_OR_RETURN(const source::TableReader reader,
                         source::TableReader::open(**file, range.offset, range.bytes));
  const source::TableParams wanted = table_params(ranks, home, epoch.epoch, epoch.epoch_id);
  const source::TableParams& found = reader.trailer().params;
  if (found.table_id != wanted.table_id || found.sources != ranks || found.epoch != epoch.epoch ||
      reader.trailer().pairs != range.values) {
    return corruption("{}: is not the auxiliary table of epoch {}", reader.where(), epoch.epoch);
  }
  return reader.verify();
}

// A table is made anew if it cannot be read; from the records of all partitions, so none of these may be
// lost.
Status Repairer::plan_tables() {
  const Manifest& manifest = found_.manifest;
  if (manifest.layout.format != run::ShuffleFormat::kLossy) return {};
  for (const EpochEntry& epoch : manifest.epochs) {
    const JobEntry& job = manifest.job_of(epoch);
    if (job.ranks == 1) continue;
    for (PartitionNumber home(0); home < job.ranks; ++home) SWALE_RETURN_IF_ERROR(plan_table(epoch, home));
  }
  return {};
}

Status Repairer::plan_table(const EpochEntry& epoch, PartitionNumber home) {
  const JobEntry& job = found_.manifest.job_of(epoch);
  const LogId id = found_.manifest.log_of(epoch, home);
  const std::optional<run::ValueRange> range = facts_of(logs_, id).of(epoch.epoch_id).table();
  const std::string path = table_log_path(directory_, id);
  Status whole = range ? check_table(*device_, path, job.ranks, home, epoch, *range)
                       : corruption("{}: the index log names no table of epoch {}", path, epoch.epoch);
  if (whole.ok()) return {};
  if (whole.code() != Code::kCorruption) return whole;
  for (PartitionNumber partition(0); partition < job.ranks; ++partition) {
    const bool has_data = partition != home || facts_of(logs_, id).has_data;
    if (!losses_.in_data(epoch, partition) && has_data) continue;
    report_.lost.push_back(fmt::format(
        "epoch {}: where the keys of partition {} are, since records of partition {} are lost, of which its "
        "table would have to tell ({})",
        epoch.epoch, home, partition, whole.message()));
    return {};
  }
  report_.found.push_back(std::string(whole.message()));
  report_.done.push_back(
      fmt::format("made the table of epoch {} in {} anew from the records", epoch.epoch, path));
  bad_tables_.insert({id, epoch.epoch});
  const auto planned = std::find_if(rebuilds_.begin(), rebuilds_.end(),
                                    [&](const Rebuild& rebuild) { return rebuild.id == id; });
  if (planned != rebuilds_.end()) return {};
  SWALE_ASSIGN_OR_RETURN(std::set<EpochNumber> epochs, whole_epochs(id));
  rebuilds_.push_back({id, std::move(epochs), {}, {}});
  return {};
}

std::vector<PartitionRuns> Repairer::runs_of(const EpochEntry& epoch) const {
  std::vector<PartitionRuns> partitions;
  for (PartitionNumber partition(0); partition < found_.manifest.job_of(epoch).ranks; ++partition) {
    const LogId id = found_.manifest.log_of(epoch, partition);
    partitions.push_back({data_log_path(directory_, id), facts_of(logs_, id).of(epoch.epoch_id).runs});
  }
  return partitions;
}

// Beside the old file: tables that are whole keep their places, those that are made anew follow them.
Status Repairer::write_tables(Rebuild* rebuild) {
  const LogId id = rebuild->id;
  const std::string path = table_log_path(directory_, id);
  std::unique_ptr<io::File> file;
  uint64_t end = 0;
  for (const EpochEntry& epoch : found_.manifest.epochs) {
    if (!bad_tables_.contains({id, epoch.epoch})) continue;
    if (!file) {
      rebuild->tables_temporary = fmt::format("{}.r{:04}", path, number_);
      SWALE_ASSIGN_OR_RETURN(file, device_->open(rebuild->tables_temporary, io::OpenMode::kCreate));
      const auto old = device_->open(path, io::OpenMode::kRead);
      if (old.ok()) {
        SWALE_ASSIGN_OR_RETURN(end, (*old)->size());
        SWALE_RETURN_IF_ERROR(copy_file_bytes(**old, 0, end, *file));
      } else if (old.status().code() != Code::kNotFound) {
        return old.status();
      }
    }
    const std::vector<PartitionRuns> partitions = runs_of(epoch);
    SWALE_ASSIGN_OR_RETURN(const run::ValueRange range,
                           rebuild_table(*device_, epoch, id.partition, partitions,
                                         fmt::format("{}.spill", rebuild->tables_temporary), *file, end));
    rebuild->tables[epoch.epoch] = range;
    end = range.end_offset();
  }
  return file ? file->sync() : Status();
}

// Writes the tables of the open epochs to a file of repair's own job.
Status Repairer::write_open_tables() {
  if (found_.manifest.layout.format != run::ShuffleFormat::kLossy || dead_job_.ranks == 1) return {};
  for (PartitionNumber home(0); !open_.empty() && home < dead_job_.ranks; ++home) {
    SWALE_RETURN_IF_ERROR(io::make_directories(*device_, part_folder(directory_, home)));
    const std::string path = table_log_path(directory_, {number_, home});
    SWALE_ASSIGN_OR_RETURN(const auto file, device_->open(path, io::OpenMode::kCreate));
    uint64_t end = 0;
    for (OpenEpoch& open : open_) {
      std::vector<PartitionRuns> partitions;
      for (PartitionNumber partition(0); partition < dead_job_.ranks; ++partition) {
        partitions.push_back(
            {data_log_path(directory_, {dead_job_.number, partition}), open.runs[partition]});
      }
      SWALE_ASSIGN_OR_RETURN(
          const run::ValueRange range,
          rebuild_table(*device_, open.epoch, home, partitions, path + ".spill", *file, end));
      open.tables.push_back(range);
      end = range.end_offset();
    }
    SWALE_RETURN_IF_ERROR(file->sync());
  }
  return {};
}

}  // namespace swale::imd
