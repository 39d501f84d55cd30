#include "imd/repair.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "imd/extrema_summary.h"
#include "imd/manifest.h"
#include "imd/reader_values.h"
#include "imd/repair_facts.h"
#include "imd/repair_index.h"
#include "imd/repair_log.h"
#include "imd/writer_core.h"
#include "imd/writer_lock.h"

namespace swale::imd {
namespace {

constexpr size_t kLockBytesMax = 4096;
constexpr uint32_t kOpenEpochsMax = 2;  // a job fills the next epoch while it closes one

// The number in part-NNNNNN.data, .index or .values.
std::optional<uint32_t> partition_number(std::string_view name) {
  const bool log = name.ends_with(".data") || name.ends_with(".index") || name.ends_with(".values");
  if (!name.starts_with("part-") || !log) return {};
  const std::string_view digits = name.substr(5, name.find('.') - 5);
  uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failure != std::errc() || stop != digits.data() + digits.size()) return {};
  return number;
}

class Repairer {
 public:
  Repairer(io::Device& device, std::string directory, const RepairOptions& options)
      : device_(device),
        directory_(std::move(directory)),
        dry_run_(options.dry_run),
        progress_(options.progress),
        values_(device, directory_, counters_) {}

  Result<RepairReport> run();

 private:
  Status lock();
  Status look();
  uint64_t data_bytes() const;
  Status look_at(uint32_t partition, PartitionFacts* facts);
  Status read_manifest();
  Status replace_lost_manifest();
  Status keep_damaged_manifest();
  Status check_indexes();
  Status rebuild_index(uint32_t partition);
  Status recover_open_epoch(bool* recovered);
  std::optional<EpochFacts> open_epoch();
  bool by_the_dead_job(const EpochFacts& epoch) const;
  std::optional<JobEntry> job_of(const EpochFacts& epoch) const;
  void count_what_stays_dead();
  Status write_open_epoch(const JobEntry& job, const EpochEntry& epoch);
  Status append_epoch(uint32_t partition, const JobEntry& job, const EpochEntry& epoch,
                      std::vector<run::FieldTotals>* totals);
  Status leave_out_runs_without_values(const EpochFacts& epoch);
  Result<bool> has_values(io::File& data, const FoundRun& run, const EpochFacts& epoch);
  Result<std::vector<FoundRun>> lay_together(io::File& data, uint32_t partition, const EpochEntry& epoch);

  io::Device& device_;
  const std::string directory_;
  const bool dry_run_;
  const std::function<void(uint64_t, uint64_t)> progress_;
  ReadCounters counters_;
  ValueReader values_;
  std::optional<WriterLock> lock_;
  std::optional<uint64_t> dead_job_;  // whose lock was found
  Manifest manifest_;
  bool manifest_lost_ = false;
  Partitions partitions_;
  uint64_t data_bytes_ = 0;  // of all data logs, if progress is wanted
  uint64_t read_bytes_ = 0;  // of them, so far
  RepairReport report_;
};

Status Repairer::lock() {
  const auto content = io::read_file(device_, lock_path(directory_), kLockBytesMax);
  if (content.ok()) {
    const auto json = nlohmann::json::parse(*content, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("job") && json["job"].is_string()) {
      const std::string job = json["job"].get<std::string>();
      uint64_t id = 0;
      if (std::from_chars(job.data(), job.data() + job.size(), id, 16).ec == std::errc()) dead_job_ = id;
    }
  }
  if (dry_run_) return {};
  std::random_device entropy;
  SWALE_ASSIGN_OR_RETURN(lock_,
                         WriterLock::acquire(device_, directory_, (uint64_t{entropy()} << 32) | entropy()));
  return {};
}

Status Repairer::read_manifest() {
  const std::string path = manifest_path(directory_);
  const auto json = io::read_file(device_, path, kManifestBytesMax);
  if (!json.ok() && json.status().code() != Code::kNotFound) return json.status();
  auto manifest = json.ok() ? Manifest::decode(*json, path) : Result<Manifest>(json.status());
  if (manifest.ok()) {
    manifest_ = std::move(*manifest);
    return {};
  }
  if (json.ok() && manifest.status().code() != Code::kCorruption) return manifest.status();
  manifest_lost_ = true;
  report_.found.push_back(json.ok() ? std::string(manifest.status().message())
                                    : fmt::format("{}: is missing", path));
  return {};
}

Status Repairer::look() {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device_.list(directory_));
  for (const std::string& name : names) {
    if (name.size() < 4 || name[0] != 'p' || name.find_first_not_of("0123456789", 1) != std::string::npos)
      continue;
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> logs,
                           device_.list(fmt::format("{}/{}", directory_, name)));
    for (const std::string& log : logs) {
      if (const auto partition = partition_number(log)) partitions_.try_emplace(*partition);
    }
  }
  if (partitions_.empty() && manifest_lost_) {
    return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there (no {}, no partition)",
                 directory_, kManifestName);
  }
  if (progress_) data_bytes_ = data_bytes();
  for (auto& [partition, facts] : partitions_) SWALE_RETURN_IF_ERROR(look_at(partition, &facts));
  return {};
}

// Of the logs that can be opened: what is wrong with the others is said where they are read.
uint64_t Repairer::data_bytes() const {
  uint64_t total = 0;
  for (const auto& [partition, facts] : partitions_) {
    const auto data = device_.open(data_log_path(directory_, partition), io::OpenMode::kRead);
    if (!data.ok()) continue;
    const auto bytes = (*data)->size();
    total += bytes.ok() ? *bytes : 0;
  }
  return total;
}

Status Repairer::look_at(uint32_t partition, PartitionFacts* facts) {
  const auto data = device_.open(data_log_path(directory_, partition), io::OpenMode::kRead);
  if (data.ok()) {
    facts->has_data = true;
    const auto note = [this](uint64_t bytes) {
      read_bytes_ += bytes;
      if (progress_) progress_(std::min(read_bytes_, data_bytes_), data_bytes_);
    };
    SWALE_ASSIGN_OR_RETURN(facts->data, take_inventory(**data, partition, note));
  } else if (data.status().code() != Code::kNotFound) {
    return data.status();
  }
  const auto index = device_.open(index_log_path(directory_, partition), io::OpenMode::kRead);
  if (index.ok()) {
    auto footer = run::read_footer(**index, partition);
    if (!footer.ok() && footer.status().code() != Code::kCorruption) return footer.status();
    if (footer.ok()) facts->footer = std::move(*footer);
  } else if (index.status().code() != Code::kNotFound) {
    return index.status();
  }
  const auto values = device_.open(value_log_path(directory_, partition), io::OpenMode::kRead);
  if (values.ok()) {
    SWALE_ASSIGN_OR_RETURN(facts->values, take_value_inventory(**values, partition));
  } else if (values.status().code() != Code::kNotFound) {
    return values.status();
  }
  ++report_.partitions;
  report_.whole_runs += facts->data.runs.size();
  report_.torn_runs += facts->data.torn_runs;
  if (facts->data.torn_runs > 0) {
    report_.found.push_back(fmt::format("partition {}: {} runs that are not whole; the first: {}", partition,
                                        facts->data.torn_runs, facts->data.first_damage.message()));
  }
  return {};
}

// The old file stays, under the first free name.
Status Repairer::keep_damaged_manifest() {
  const std::string path = manifest_path(directory_);
  SWALE_ASSIGN_OR_RETURN(const bool exists, device_.exists(path));
  if (!exists) return {};
  std::string kept = path + ".damaged";
  for (int number = 1;; ++number) {
    SWALE_ASSIGN_OR_RETURN(const bool taken, device_.exists(kept));
    if (!taken) break;
    kept = fmt::format("{}.damaged.{}", path, number);
  }
  SWALE_RETURN_IF_ERROR(device_.rename(path, kept));
  report_.done.push_back(fmt::format("kept the damaged {} as {}", kManifestName, kept));
  return device_.sync_directory(directory_);
}

Status Repairer::replace_lost_manifest() {
  RebuiltManifest rebuilt = rebuild_manifest(partitions_);
  if (rebuilt.unexplained) {
    // A swale.json without these epochs would let the next writer cut them off.
    return error(
        Code::kUnsupported, Scope::kFile,
        "{}: {} cannot be made anew: epoch {} is there, but its keys lie where no number of ranks puts them "
        "by "
        "hash, as if it was written with a partitioner of the user's; nothing was changed: put a copy of {} "
        "back",
        directory_, kManifestName, *rebuilt.unexplained, kManifestName);
  }
  manifest_ = std::move(rebuilt.manifest);
  report_.manifest_rebuilt = true;
  if (!dry_run_) {
    SWALE_RETURN_IF_ERROR(keep_damaged_manifest());
    SWALE_RETURN_IF_ERROR(io::replace_file(device_, manifest_path(directory_), manifest_.encode()));
  }
  report_.done.push_back(fmt::format("made {} anew from the logs: {} jobs, {} epochs", kManifestName,
                                     manifest_.jobs.size(), manifest_.epochs.size()));
  report_.lost.push_back(
      "steps and times of all epochs, the ids of jobs, the schema, if there was one, and options of the "
      "layout that no log shows");
  return {};
}

Status Repairer::check_indexes() {
  int32_t partitions = 0;
  for (const EpochEntry& epoch : manifest_.epochs)
    partitions = std::max(partitions, manifest_.jobs[epoch.job].ranks);
  for (uint32_t partition = 0; partition < static_cast<uint32_t>(partitions); ++partition) {
    const auto facts = partitions_.find(partition);
    if (facts == partitions_.end() || !facts->second.has_data) {
      report_.lost.push_back(fmt::format("{}: is missing: what it held is lost; restore it from a copy",
                                         data_log_path(directory_, partition)));
      continue;
    }
    const Status status = check_index(device_, directory_, partition, manifest_);
    if (status.ok()) continue;
    if (status.code() != Code::kCorruption) return status;
    report_.found.push_back(std::string(status.message()));
    if (!dry_run_) SWALE_RETURN_IF_ERROR(rebuild_index(partition));
    if (facts->second.data.torn_runs > 0) {
      report_.lost.push_back(fmt::format("{}: records of runs that are not whole are in no index any more",
                                         data_log_path(directory_, partition)));
    }
    ++report_.indexes_rebuilt;
    report_.done.push_back(
        fmt::format("made {} anew from the data log", index_log_path(directory_, partition)));
  }
  return {};
}

Status Repairer::rebuild_index(uint32_t partition) {
  const std::string path = index_log_path(directory_, partition);
  const std::string temporary = path + ".tmp";
  PartitionFacts& facts = partitions_.at(partition);
  SWALE_ASSIGN_OR_RETURN(const auto data,
                         device_.open(data_log_path(directory_, partition), io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const auto index, device_.open(temporary, io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(index->truncate(0));
  SWALE_ASSIGN_OR_RETURN(
      IndexWriter writer,
      IndexWriter::create(*data, *index, 0, run::FooterBuilder(partition), manifest_.layout));
  uint64_t end_block = 0;
  for (const EpochEntry& epoch : manifest_.epochs) {
    const JobEntry& job = manifest_.jobs[epoch.job];
    if (partition >= static_cast<uint32_t>(job.ranks)) continue;
    const std::vector<FoundRun> runs = runs_of(facts.data, epoch.epoch_id);
    std::vector<run::FieldTotals> totals;
    SWALE_RETURN_IF_ERROR(
        writer.add_epoch(partition, job, epoch, runs, end_block, manifest_.schema.indexed, &totals));
    SWALE_RETURN_IF_ERROR(writer.add_values(epoch, values_of(facts, epoch.epoch_id)));
    if (!runs.empty()) end_block = runs.back().end_block();
  }
  SWALE_RETURN_IF_ERROR(writer.finish());
  SWALE_RETURN_IF_ERROR(device_.rename(temporary, path));
  SWALE_RETURN_IF_ERROR(device_.sync_directory(part_folder(directory_, partition)));
  SWALE_ASSIGN_OR_RETURN(facts.footer, run::read_footer(*index, partition));
  return {};
}

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

Result<RepairReport> Repairer::run() {
  SWALE_ASSIGN_OR_RETURN(const bool exists, device_.exists(directory_));
  if (!exists) {
    return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there", directory_);
  }
  SWALE_RETURN_IF_ERROR(read_manifest());
  SWALE_RETURN_IF_ERROR(lock());
  // Again: a job may have committed between the first look and the lock.
  report_ = {};
  manifest_lost_ = false;
  SWALE_RETURN_IF_ERROR(read_manifest());
  SWALE_RETURN_IF_ERROR(look());
  if (manifest_lost_) SWALE_RETURN_IF_ERROR(replace_lost_manifest());
  SWALE_RETURN_IF_ERROR(check_indexes());
  for (uint32_t epoch = 0; epoch < kOpenEpochsMax; ++epoch) {
    bool recovered = false;
    SWALE_RETURN_IF_ERROR(recover_open_epoch(&recovered));
    if (!recovered) break;
  }
  count_what_stays_dead();
  return std::move(report_);
}

void Repairer::count_what_stays_dead() {
  uint64_t runs = 0;
  for (const auto& [partition, facts] : partitions_) {
    for (const FoundRun& run : facts.data.runs) {
      const uint32_t epoch = run.header.epoch;
      const bool named =
          epoch < manifest_.epochs.size() && manifest_.epochs[epoch].epoch_id == run.header.epoch_id;
      const bool dropped = std::find(manifest_.dropped.begin(), manifest_.dropped.end(),
                                     run.header.epoch_id) != manifest_.dropped.end();
      runs += named || dropped ? 0 : 1;
    }
  }
  if (runs > 0) report_.lost.push_back(fmt::format("{} whole runs of epochs that cannot be recovered", runs));
}

}  // namespace

Result<RepairReport> repair_directory(io::Device& device, const std::string& directory,
                                      const RepairOptions& options) {
  return Repairer(device, directory, options).run();
}

}  // namespace swale::imd
