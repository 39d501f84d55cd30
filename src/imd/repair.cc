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
#include "imd/repair_index.h"
#include "imd/repair_log.h"
#include "imd/repairer.h"
#include "imd/writer_core.h"

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

}  // namespace

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

Result<RepairReport> repair_directory(io::Device& device, const std::string& directory,
                                      const RepairOptions& options) {
  return Repairer(device, directory, options).run();
}

}  // namespace swale::imd
