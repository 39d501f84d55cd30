#include "imd/check/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "imd/check/repair_log.h"
#include "imd/check/repairer.h"
#include "imd/format/attributes.h"
#include "imd/format/generation.h"
#include "io/anchor.h"

namespace swale::imd {

// Takes the lock, but not in a directory that is none of Swale's.
Status Repairer::begin() {
  SWALE_ASSIGN_OR_RETURN(const bool exists, device_->exists(directory_));
  if (!exists) return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there", directory_);
  SWALE_ASSIGN_OR_RETURN(anchored_, device_->anchored(directory_));
  device_ = anchored_.get();
  SWALE_RETURN_IF_ERROR(find_logs());
  SWALE_RETURN_IF_ERROR(find_manifest(*device_, directory_, &logs_).status());
  if (dry_run_) return {};
  io::LockRequest request = environment_.lock;
  request.job = lock_job(environment_.entropy());
  SWALE_ASSIGN_OR_RETURN(lock_, acquire_writer_lock(*device_, directory_, request));
  // Again: another job may have written between the first look and the lock.
  logs_.clear();
  return find_logs();
}

Status Repairer::find_logs() {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device_->list(directory_));
  for (const std::string& name : names) {
    if (name.size() < 4 || name[0] != 'p' || name.find_first_not_of("0123456789", 1) != std::string::npos)
      continue;
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> logs,
                           device_->list(fmt::format("{}/{}", directory_, name)));
    for (const std::string& log : logs) {
      if (const auto id = parse_log_name(log)) logs_.try_emplace(*id);
    }
  }
  return find_logs_beside();
}

// A cluster's: its folder has a number for a name, as no job's directory need have.
Status Repairer::find_logs_beside() {
  const std::string path = io::without_trailing_slashes(directory_);
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (!parse_job_folder(name)) return {};
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> logs, device_->list(io::parent_directory(path)));
  for (const std::string& log : logs) {
    if (!log.starts_with(name + ".")) continue;
    if (const auto id = parse_log_name(log)) logs_.try_emplace(*id);
  }
  return {};
}

Status Repairer::look() {
  if (progress_) data_bytes_ = data_bytes();
  for (auto& [id, facts] : logs_) SWALE_RETURN_IF_ERROR(look_at(id, &facts));
  SWALE_ASSIGN_OR_RETURN(found_, find_manifest(*device_, directory_, &logs_));
  report_.found = std::move(found_.found);
  report_.lost = std::move(found_.lost);
  report_.manifest_rebuilt = !report_.found.empty();
  return mend_attributes();
}

// An epoch whose line is damaged has no attributes; the directory has those that an earlier epoch brought. An
// epoch whose record is lost has the directory's of the epoch before.
Status Repairer::mend_attributes() {
  std::vector<EpochEntry>& epochs = found_.manifest.epochs;
  std::vector<bool> describes(epochs.size());
  for (EpochEntry& epoch : epochs) {
    const Result<Attributes> found = read_attributes(*device_, directory_, epoch);
    const Code code = found.status().code();
    if (!found.ok() && code != Code::kCorruption && code != Code::kNotFound) return found.status();
    if (!found.ok()) {
      report_.lost.push_back(
          fmt::format("attributes of epoch {}: {}", epoch.epoch, found.status().message()));
      report_.done.push_back(fmt::format("epoch {} has no attributes any more", epoch.epoch));
      epoch.attributes = {};
      attributes_mended_ = true;
    }
    // Documents of the manifest may be lost, or older than the first attributes.
    if (epoch.attributes.bytes != 0) found_.manifest.has_attributes = true;
    describes[epoch.epoch] = found.ok() && found->directory.has_value();
    const bool unknown = epoch.recovered != Recovered::kNo && !epoch.described_by;
    const bool gone = epoch.described_by && !describes[*epoch.described_by];
    if (!unknown && !gone) continue;
    epoch.described_by = epoch.epoch == 0 ? std::nullopt : epochs[epoch.epoch - 1].described_by;
    attributes_mended_ = attributes_mended_ || gone;
  }
  return {};
}

// The bytes of all logs that can be opened. The functions that read the others report what is wrong with
// them.
uint64_t Repairer::data_bytes() const {
  uint64_t total = 0;
  for (const auto& [id, facts] : logs_) {
    const auto data = device_->open(data_log_path(directory_, id), io::OpenMode::kRead);
    if (!data.ok()) continue;
    const auto bytes = (*data)->size();
    total += bytes.ok() ? *bytes : 0;
  }
  return total;
}

Status Repairer::look_at(LogId id, LogFacts* facts) {
  std::optional<run::Footer> footer;
  const auto index = device_->open(index_log_path(directory_, id), io::OpenMode::kRead);
  if (index.ok()) {
    Result<run::Footer> read = run::read_footer(**index, id.partition);
    if (!read.ok() && read.status().code() != Code::kCorruption) return read.status();
    if (read.ok()) footer = std::move(*read);
  } else if (index.status().code() != Code::kNotFound) {
    return index.status();
  }
  DataInventory inventory;
  const auto data = device_->open(data_log_path(directory_, id), io::OpenMode::kRead);
  if (data.ok()) {
    const auto note = [this](uint64_t bytes) {
      read_bytes_ += bytes;
      if (progress_) progress_(std::min(read_bytes_, data_bytes_), data_bytes_);
    };
    SWALE_ASSIGN_OR_RETURN(inventory, take_inventory(**data, id.partition, note));
    report_.reclaimable_bytes += (inventory.blocks - inventory.end_block) * run::kBlockBytes;
  } else if (data.status().code() != Code::kNotFound) {
    return data.status();
  }
  std::vector<FoundValues> found_values;
  const auto values = device_->open(value_log_path(directory_, id), io::OpenMode::kRead);
  if (values.ok()) {
    SWALE_ASSIGN_OR_RETURN(found_values, take_value_inventory(**values, id.partition));
  } else if (values.status().code() != Code::kNotFound) {
    return values.status();
  }
  const auto pages = device_->open(value_pages_path(directory_, id), io::OpenMode::kRead);
  if (pages.ok()) {
    SWALE_ASSIGN_OR_RETURN(found_values, take_page_inventory(**pages, id.partition));
  } else if (pages.status().code() != Code::kNotFound) {
    return pages.status();
  }
  report_.partitions = std::max(report_.partitions, uint64_t{id.partition} + 1);
  report_.whole_runs += inventory.runs.size();
  report_.torn_runs += inventory.torn_runs;
  *facts = gather(data.ok(), std::move(inventory), found_values, std::move(footer));
  return {};
}

// What the manifest says of it, and what it will say.
void Repairer::tell_losses() {
  const Manifest& manifest = found_.manifest;
  for (const LostPart& part : losses_.parts) {
    report_.lost.push_back(fmt::format("epoch {}, partition {}: {}", manifest.find_epoch(part)->epoch,
                                       part.partition, part.what));
  }
  report_.lost_parts = losses_.parts.size();
  for (const LostPart& part : manifest.lost) {
    if (std::find(losses_.parts.begin(), losses_.parts.end(), part) == losses_.parts.end())
      report_.done.push_back(
          fmt::format("partition {} of epoch {:016x} is whole again", part.partition, part.epoch_id));
  }
  if (losses_.parts != manifest.lost)
    report_.done.push_back(fmt::format("recorded {} parts of epochs as lost", losses_.parts.size()));
}

bool Repairer::anything_to_do() const {
  return report_.manifest_rebuilt || attributes_mended_ || losses_.parts != found_.manifest.lost ||
         !rebuilds_.empty() || !open_.empty();
}

Result<RepairReport> Repairer::run() {
  SWALE_RETURN_IF_ERROR(begin());
  SWALE_RETURN_IF_ERROR(look());
  losses_ = find_losses(directory_, found_.manifest, logs_);
  if (report_.manifest_rebuilt) {
    report_.done.push_back(fmt::format("{} the manifest: {} jobs, {} epochs",
                                       found_.rebuilt ? "put together" : "made copies of",
                                       found_.manifest.jobs.size(), found_.manifest.epochs.size()));
  }
  tell_losses();
  SWALE_RETURN_IF_ERROR(plan_rebuilds());
  SWALE_RETURN_IF_ERROR(plan_tables());
  SWALE_RETURN_IF_ERROR(plan_open_epochs());
  if (anything_to_do() && !dry_run_) SWALE_RETURN_IF_ERROR(publish());
  return std::move(report_);
}

// The new generation makes everything valid at once, but index logs: these only ever gain by being replaced,
// and what they leave out is recorded before.
Status Repairer::publish() {
  SWALE_ASSIGN_OR_RETURN(number_, claim_job(*device_, directory_));
  SWALE_RETURN_IF_ERROR(write_open_tables());
  SWALE_RETURN_IF_ERROR(write_open_epochs());
  for (Rebuild& rebuild : rebuilds_) {
    SWALE_RETURN_IF_ERROR(write_tables(&rebuild));
    SWALE_RETURN_IF_ERROR(write_index(&rebuild));
  }
  if (found_.keep_damaged) SWALE_RETURN_IF_ERROR(keep_damaged_manifest());
  SWALE_RETURN_IF_ERROR(commit());
  return replace_indexes();
}

// As a job that opens, commits and closes.
Status Repairer::commit() {
  Manifest manifest = found_.manifest;
  // What the old generation lacks may yet be wanted of the one before it.
  const uint32_t superseded = report_.manifest_rebuilt ? manifest.generation : manifest.continues;
  manifest.continues = manifest.generation;
  manifest.generation = number_;
  manifest.closed = false;
  manifest.epochs_promised = manifest.epochs.size();
  manifest.lost = losses_.parts;
  if (!open_.empty()) {
    JobEntry job = dead_job_;
    job.number = number_;
    manifest.jobs.push_back(job);
  }
  const JobFence fence(*device_, directory_, number_, &*lock_);
  SWALE_RETURN_IF_ERROR(fence.check());
  SWALE_ASSIGN_OR_RETURN(EpochLog log, write_generation(*device_, directory_, manifest, superseded));
  for (OpenEpoch& open : open_) {
    open.epoch.job = static_cast<uint32_t>(manifest.jobs.size() - 1);
    if (!manifest.epochs.empty()) open.epoch.described_by = manifest.epochs.back().described_by;
    SWALE_RETURN_IF_ERROR(log.append(open.epoch, manifest));
  }
  SWALE_RETURN_IF_ERROR(fence.check());
  manifest.closed = true;
  manifest.epochs_promised = log.epochs();
  return rewrite_document(*device_, directory_, manifest);
}

// The old file stays, under the first free name.
Status Repairer::keep_damaged_manifest() {
  const std::string path = manifest_path(directory_);
  std::string kept = path + ".damaged";
  for (int number = 1;; ++number) {
    SWALE_ASSIGN_OR_RETURN(const bool taken, device_->exists(kept));
    if (!taken) break;
    kept = fmt::format("{}.damaged.{}", path, number);
  }
  SWALE_RETURN_IF_ERROR(device_->rename(path, kept));
  report_.done.push_back(fmt::format("kept the damaged {} as {}", kManifestName, kept));
  return device_->sync_directory(directory_);
}

Result<RepairReport> repair_directory(io::Device& device, const std::string& directory,
                                      const RepairOptions& options) {
  return Repairer(device, directory, options).run();
}

}  // namespace swale::imd
