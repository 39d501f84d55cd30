#include "imd/format/generation.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"

namespace swale::imd {
namespace {

constexpr int kLoadAttempts = 8;  // generations that may be made between two looks

Result<Manifest> read_document(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::string json, io::read_file(device, path, kManifestBytesMax));
  return Manifest::decode(json, path);
}

// The document in the folder of a generation; kCorruption also for another generation's.
Result<Manifest> read_generation(io::Device& device, const std::string& directory, uint32_t number) {
  const std::string path = generation_path(directory, number);
  SWALE_ASSIGN_OR_RETURN(Manifest manifest, read_document(device, path));
  if (manifest.generation == number) return manifest;
  return corruption("{}: is the manifest of generation {}, not {}; run `swale repair`", path,
                    manifest.generation, number);
}

Result<std::vector<uint32_t>> list_jobs(io::Device& device, const std::string& directory) {
  return store::list_jobs(device, job_claims(directory));
}

bool is_lost(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption;
}

// A job that never came to write its document has committed nothing: if it has, the document is lost, and its
// epochs must not be passed over.
Result<Manifest> document_of_claimed(io::Device& device, const std::string& directory, uint32_t number) {
  Result<Manifest> document = read_generation(device, directory, number);
  if (document.status().code() != Code::kNotFound) return document;
  const Result<SalvagedEpochs> log = salvage_epoch_log(device, directory, number);
  if (!log.ok()) return log.status();
  // Epochs that it has moved are known before the document is there.
  const auto own = [&](const auto& record) {
    return record && record->job_number == number && record->epoch.origin == 0;
  };
  if (std::none_of(log->records.begin(), log->records.end(), own)) return document;
  document = read_generation(device, directory, number);  // it may have been opening
  if (document.status().code() != Code::kNotFound) return document;
  return corruption("{}: is missing, and {} names epochs of job {}; restore the file, or run `swale repair`",
                    generation_path(directory, number), epoch_log_path(directory, number), number);
}

// The newest generation, by its own document; kNotFound: there is none. An older one is never taken for one
// whose document is damaged, or missing although it has committed: epochs would be missing without a word.
Result<Manifest> newest_copy(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> jobs, list_jobs(device, directory));
  for (auto number = jobs.rbegin(); number != jobs.rend(); ++number) {
    Result<Manifest> copy = document_of_claimed(device, directory, *number);
    if (copy.status().code() != Code::kNotFound) return copy;
  }
  return error(Code::kNotFound, Scope::kFile, "{}: no generation has a manifest", jobs_folder(directory));
}

// swale.json, or what stands in for it.
Result<Manifest> first_document(io::Device& device, const std::string& directory) {
  Result<Manifest> manifest = read_document(device, manifest_path(directory));
  if (manifest.ok() || !is_lost(manifest.status())) return manifest;
  Result<Manifest> copy = newest_copy(device, directory);
  if (copy.ok()) {
    log_warn("{}; {} is taken instead. `swale repair` makes {} anew", manifest.status().message(),
             generation_path(directory, copy->generation), kManifestName);
    return copy;
  }
  if (copy.status().code() != Code::kNotFound) return copy;
  if (manifest.status().code() != Code::kNotFound) return manifest;
  return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there (no {} in it)", directory,
               kManifestName);
}

// Follows the claims after `manifest` to the newest generation that is valid.
Status follow(io::Device& device, const std::string& directory, Manifest* manifest) {
  for (uint32_t number = manifest->generation + 1; number <= kJobNumberMax; ++number) {
    SWALE_ASSIGN_OR_RETURN(const bool claimed, device.exists(job_folder(directory, number)));
    if (!claimed) return {};
    Result<Manifest> next = document_of_claimed(device, directory, number);
    if (next.status().code() == Code::kNotFound) continue;  // never opened, opening now, or superseded
    SWALE_RETURN_IF_ERROR(next.status());
    *manifest = std::move(*next);
  }
  return {};
}

}  // namespace

store::ClaimNames job_claims(const std::string& directory) {
  return {.folder = jobs_folder(directory),
          .directory = directory,
          .path = [directory](uint32_t number) { return job_folder(directory, number); },
          .number = parse_job_folder,
          .kind = store::ClaimNames::Kind::kFolder,
          .number_min = 0,
          .number_max = kJobNumberMax};
}

Result<Manifest> load_manifest(io::Device& device, const std::string& directory) {
  for (int attempt = 1;; ++attempt) {
    SWALE_ASSIGN_OR_RETURN(Manifest manifest, first_document(device, directory));
    SWALE_RETURN_IF_ERROR(follow(device, directory, &manifest));
    Result<EpochLogContent> log = read_epoch_log(device, directory, manifest);
    if (log.ok()) {
      manifest.epochs = std::move(log->epochs);
      return manifest;
    }
    // Another job may have superseded this generation meanwhile, or have appended while the log was read.
    const bool missing = log.status().code() == Code::kNotFound;
    if (!missing && (attempt > 1 || log.status().code() != Code::kCorruption)) return log.status();
    if (attempt < kLoadAttempts) continue;
    return corruption("{}: is missing, though {} names it; restore the file, or run `swale repair`",
                      epoch_log_path(directory, manifest.generation), kManifestName);
  }
}

Result<bool> has_manifest(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(manifest_path(directory)));
  if (there) return true;
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> jobs, list_jobs(device, directory));
  for (const uint32_t number : jobs) {
    SWALE_ASSIGN_OR_RETURN(const bool copy, device.exists(generation_path(directory, number)));
    if (copy) return true;
  }
  return false;
}

std::vector<Status> check_documents(io::Device& device, const std::string& directory,
                                    const Manifest& manifest) {
  std::vector<Status> problems;
  for (const std::string& path :
       {manifest_path(directory), generation_path(directory, manifest.generation)}) {
    const Status status = read_document(device, path).status();
    // Jobs that were killed while they opened the directory may all have missed to make it.
    const bool never_made = status.code() == Code::kNotFound && manifest.epochs.empty();
    if (!status.ok() && !never_made)
      problems.push_back(is_lost(status) ? corruption("{}", status.message()) : status);
  }
  const Result<EpochLogContent> log = read_epoch_log(device, directory, manifest);
  if (!log.ok()) {
    problems.push_back(log.status());
  } else if (log->damaged_copies > 0) {
    problems.push_back(
        corruption("{}: offset {}: {} records have one damaged copy; their second copies are right",
                   epoch_log_path(directory, manifest.generation), log->damaged_offset, log->damaged_copies));
  }
  return problems;
}

Status make_first_generation(io::Device& device, const std::string& directory, Manifest manifest) {
  constexpr uint32_t kNumber = 0;
  manifest.generation = manifest.continues = kNumber;
  manifest.closed = true;
  SWALE_RETURN_IF_ERROR(io::make_directories(device, job_folder(directory, kNumber)));
  // Empty, but now: a file system that places folders by the space around them (ext4) puts one that is made
  // after a gigabyte of logs far away, and each opening would wait for what it reads ahead there.
  if (manifest.log_place == LogPlace::kInFolders) {
    const Status made = device.make_directory(clusters_folder(directory));
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
  }
  const Status removed = device.remove(epoch_log_path(directory, kNumber));
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  SWALE_RETURN_IF_ERROR(write_generation(device, directory, manifest, kNumber).status());
  return device.sync_directory(io::parent_directory(directory));
}

Manifest next_generation(Manifest base, JobEntry job) {
  base.continues = base.generation;
  base.generation = job.number;
  base.closed = false;
  base.epochs_promised = base.epochs.size();
  base.jobs.push_back(std::move(job));
  return base;
}

Result<uint32_t> claim_job(io::Device& device, const std::string& directory) {
  SWALE_RETURN_IF_ERROR(io::make_directories(device, jobs_folder(directory)));
  SWALE_ASSIGN_OR_RETURN(const store::JobClaim claim, store::JobClaim::next(device, job_claims(directory)));
  return claim.number();
}

Result<EpochLog> write_generation(io::Device& device, const std::string& directory, const Manifest& manifest,
                                  uint32_t superseded) {
  SWALE_ASSIGN_OR_RETURN(EpochLog log, EpochLog::create(device, directory, manifest.generation, manifest));
  SWALE_RETURN_IF_ERROR(rewrite_document(device, directory, manifest));
  if (superseded < manifest.continues) {
    for (const std::string& path :
         {generation_path(directory, superseded), epoch_log_path(directory, superseded)}) {
      const Status removed = device.remove(path);
      if (!removed.ok() && removed.code() != Code::kNotFound) log_warn("{}", removed.message());
    }
  }
  return log;
}

// swale.json last: until then, readers find the generation by its number. It is written in this job's folder
// first, so that two jobs never write to one temporary.
Status rewrite_document(io::Device& device, const std::string& directory, const Manifest& manifest) {
  const std::string document = manifest.encode();
  const std::string path = generation_path(directory, manifest.generation);
  SWALE_RETURN_IF_ERROR(io::replace_file(device, path, document));
  const std::string draft = fmt::format("{}/{}", job_folder(directory, manifest.generation), kManifestName);
  SWALE_RETURN_IF_ERROR(io::replace_file(device, draft, document));
  SWALE_RETURN_IF_ERROR(device.rename(draft, manifest_path(directory)));
  return device.sync_directory(directory);
}

JobFence::JobFence(io::Device& device, const std::string& directory, uint32_t job, io::LockFile* lock)
    : claim_(device, job_claims(directory), job), lock_(lock) {}

Status JobFence::check() const {
  SWALE_RETURN_IF_ERROR(claim_.fence());
  return lock_ == nullptr ? Status() : lock_->check();
}

}  // namespace swale::imd
