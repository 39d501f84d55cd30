#include "imd/check/repair_manifest.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "imd/check/repair_owners.h"
#include "imd/check/repair_shape.h"
#include "imd/format/epoch_log.h"
#include "imd/format/generation.h"

namespace swale::imd {
namespace {

bool is_damage(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption;
}

// Not an epoch that it has moved: it knows of these before its document is there.
bool is_own_record(const SalvagedEpochs::Record& record, uint32_t job) {
  return record.job_number == job && record.epoch.origin == 0;
}

class ManifestFinder {
 public:
  ManifestFinder(io::Device& device, const std::string& directory, Logs* logs)
      : device_(device), directory_(directory), logs_(*logs) {}

  Result<FoundManifest> run();

 private:
  Status read_documents();
  Status read_document(const std::string& path, std::optional<uint32_t> number);
  Status read_epoch_logs();
  Status choose_generation();
  bool existed(uint32_t number) const;
  void take_document();
  void remove_misplaced();
  Status take_epochs();
  void gather_epochs(const SalvagedEpochs* log);
  bool is_own(const SalvagedEpochs& newest, uint64_t number) const;
  uint32_t first_job(const SalvagedEpochs& newest, uint64_t number) const;
  void take_record(const SalvagedEpochs::Record& record);
  bool take_from_logs(uint64_t number, uint32_t job_min);
  void lose(uint64_t number);
  uint32_t job_index(uint32_t number);
  void settle_jobs();

  io::Device& device_;
  const std::string& directory_;
  Logs& logs_;
  std::set<uint32_t> numbers_;                         // of jobs: folders, logs
  std::map<uint32_t, Manifest> documents_;             // by generation
  std::map<uint32_t, std::string> damaged_documents_;  // in folders; and what is wrong
  std::optional<uint32_t> in_swale_json_;              // the generation
  std::set<uint32_t> in_folders_;                      // whose document is whole
  std::map<uint32_t, SalvagedEpochs> epoch_logs_;
  std::optional<uint32_t> newest_;
  Misplaced misplaced_;
  std::vector<uint32_t> jobs_of_epochs_;  // their numbers, until the jobs are settled
  FoundManifest out_;
};

Status ManifestFinder::read_document(const std::string& path, std::optional<uint32_t> number) {
  const Result<std::string> json = io::read_file(device_, path, kManifestBytesMax);
  if (json.status().code() == Code::kNotFound && number) return {};
  if (!json.ok() && json.status().code() != Code::kNotFound) return json.status();
  Result<Manifest> document = json.ok() ? Manifest::decode(*json, path) : Result<Manifest>(json.status());
  if (document.ok()) {
    const uint32_t generation = document->generation;
    // Its job rewrites it when it closes: of two copies the closed one is the newer.
    const auto known = documents_.find(generation);
    if (known == documents_.end() || (document->closed && !known->second.closed))
      documents_[generation] = std::move(*document);
    if (!number) in_swale_json_ = generation;
    if (number == generation) in_folders_.insert(generation);
    if (!number || number == generation) return {};
    document = corruption("{}: is of generation {}, expected {}", path, generation, *number);
  }
  if (!is_damage(document.status())) return document.status();
  const std::string what =
      json.ok() ? std::string(document.status().message()) : fmt::format("{}: is missing", path);
  if (number) {
    damaged_documents_.emplace(*number, what);
  } else {
    out_.keep_damaged = json.ok();
    out_.found.push_back(what);
  }
  return {};
}

Status ManifestFinder::read_documents() {
  const Result<std::vector<std::string>> names = device_.list(jobs_folder(directory_));
  if (!names.ok() && names.status().code() != Code::kNotFound) return names.status();
  if (names.ok()) {
    for (const std::string& name : *names) {
      if (const auto number = parse_job_folder(name)) numbers_.insert(*number);
    }
  }
  SWALE_RETURN_IF_ERROR(read_document(manifest_path(directory_), std::nullopt));
  for (const uint32_t number : numbers_)
    SWALE_RETURN_IF_ERROR(read_document(generation_path(directory_, number), number));
  for (const auto& [id, log] : logs_) numbers_.insert(id.job);
  return {};
}

// A log that is in another one's place counts where it belongs, unless that place has its own.
Status ManifestFinder::read_epoch_logs() {
  std::vector<SalvagedEpochs> elsewhere;
  for (const uint32_t number : numbers_) {
    Result<SalvagedEpochs> log = salvage_epoch_log(device_, directory_, number);
    if (log.status().code() == Code::kNotFound) continue;
    SWALE_RETURN_IF_ERROR(log.status());
    if (log->generation.value_or(number) == number) {
      epoch_logs_.emplace(number, std::move(*log));
    } else {
      elsewhere.push_back(std::move(*log));
    }
  }
  for (SalvagedEpochs& log : elsewhere) epoch_logs_.emplace(*log.generation, std::move(log));
  return {};
}

// A job that was opened has a document, and an epoch log with epochs of its own once one is committed.
bool ManifestFinder::existed(uint32_t number) const {
  if (documents_.contains(number) || damaged_documents_.contains(number)) return true;
  const auto log = epoch_logs_.find(number);
  if (log == epoch_logs_.end()) return false;
  return std::any_of(log->second.records.begin(), log->second.records.end(),
                     [&](const auto& record) { return record && is_own_record(*record, number); });
}

Status ManifestFinder::choose_generation() {
  for (const uint32_t number : numbers_) {
    if (existed(number)) newest_ = number;
  }
  for (const auto& [number, log] : epoch_logs_) {
    // All documents are lost: the last one that knows of epochs.
    if ((!newest_ || !existed(*newest_)) && !log.records.empty()) newest_ = number;
  }
  if (newest_ || !logs_.empty()) return {};
  return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there (no {}, no partition)",
               directory_, kManifestName);
}

void ManifestFinder::take_document() {
  Manifest& manifest = out_.manifest;
  if (documents_.empty()) {
    manifest.layout = layout_of_logs(logs_);
    if (!logs_.empty()) manifest.log_place = logs_.begin()->first.place;
    manifest.generation = newest_.value_or(0);
    out_.rebuilt = true;
    out_.lost.push_back(
        "the schema, if there was one, ids of jobs, and options of the layout that no log shows");
    return;
  }
  const Manifest& last = documents_.rbegin()->second;
  manifest = last;
  if (last.generation == newest_) return;
  out_.rebuilt = true;
  manifest.generation = *newest_;
  manifest.closed = false;
  manifest.epochs_promised = 0;
  out_.lost.push_back(
      fmt::format("the manifest of generation {}: what jobs after {} were is taken from their logs",
                  newest_.value_or(0), last.generation));
}

void ManifestFinder::remove_misplaced() {
  EpochOwners owners;
  for (const auto& [generation, document] : documents_) {
    for (const JobEntry& job : document.jobs) owners.add_job(job);
  }
  for (const auto& [generation, log] : epoch_logs_) {
    for (const auto& record : log.records) {
      if (!record) continue;
      const uint32_t origin = record->epoch.origin;
      owners.add_record(record->epoch.epoch_id, origin != 0 ? origin : record->job_number);
      if (origin != 0) owners.add_move(record->epoch.epoch_id, record->job_number);
    }
  }
  misplaced_ = imd::remove_misplaced(owners, out_.manifest.jobs, newest_.value_or(kJobNumberMax), &logs_);
}

// Whether the epoch is of the newest generation's own job, not one of those that it found.
bool ManifestFinder::is_own(const SalvagedEpochs& newest, uint64_t number) const {
  // Until its job closes it, a document promises the epochs that were found.
  const bool document_whole = documents_.contains(*newest_);
  if (document_whole && !out_.manifest.closed && number >= out_.manifest.epochs_promised) return true;
  for (uint64_t at = 0; at < newest.records.size() && at <= number; ++at) {
    if (newest.records[at] && is_own_record(*newest.records[at], *newest_)) return true;
  }
  const EpochNumber epoch_number(static_cast<uint32_t>(number));
  if (misplaced_.owned.contains({*newest_, epoch_number}) || misplaced_.unknown.contains(epoch_number))
    return true;
  return std::any_of(logs_.begin(), logs_.end(), [&](const auto& entry) {
    const auto& [id, log] = entry;
    return id.job == *newest_ && std::any_of(log.epochs.begin(), log.epochs.end(), [&](const auto& epoch) {
             const LogEpoch& here = epoch.second;
             return here.epoch == number && !(here.segments.empty() && here.runs.empty());
           });
  });
}

// No job before this one has written the epoch: along a generation the jobs' numbers never fall. What the
// logs of a job before have of this number was dropped.
uint32_t ManifestFinder::first_job(const SalvagedEpochs& newest, uint64_t number) const {
  if (newest_ && is_own(newest, number)) return *newest_;
  if (jobs_of_epochs_.empty()) return 0;
  const uint32_t origin = out_.manifest.epochs.back().origin;
  return origin != 0 ? origin : jobs_of_epochs_.back();
}

void ManifestFinder::take_record(const SalvagedEpochs::Record& record) {
  out_.manifest.epochs.push_back(record.epoch);
  jobs_of_epochs_.push_back(record.job_number);
}

// As the index logs of the last job tell that has an epoch of this number. What its partitions do not tell is
// lost.
bool ManifestFinder::take_from_logs(uint64_t number, uint32_t job_min) {
  std::optional<std::pair<uint32_t, uint64_t>> best;  // job and epoch id
  for (const auto& [id, log] : logs_) {
    if (id.job < job_min) continue;
    for (const auto& [epoch_id, epoch] : log.epochs) {
      if (epoch.epoch == number && !epoch.segments.empty() && (!best || id.job >= best->first))
        best = {id.job, epoch_id};
    }
  }
  if (!best) return false;
  EpochEntry epoch;
  epoch.epoch = EpochNumber(static_cast<uint32_t>(number));
  epoch.epoch_id = best->second;
  epoch.step = kStepUnknown;
  epoch.time = std::numeric_limits<double>::quiet_NaN();
  epoch.recovered = Recovered::kWhole;
  take_record({epoch, best->first});
  out_.rebuilt = true;
  out_.lost.push_back(fmt::format("step and time of epoch {}", number));
  return true;
}

// An epoch that nothing is known of but that it was committed: its place is kept, so that a query says so.
void ManifestFinder::lose(uint64_t number) {
  const std::vector<JobEntry>& jobs = out_.manifest.jobs;
  const uint32_t job = !jobs_of_epochs_.empty() ? jobs_of_epochs_.back()
                       : !jobs.empty()          ? jobs.front().number
                                                : newest_.value_or(logs_.rbegin()->first.job);
  EpochEntry epoch;
  epoch.epoch = EpochNumber(static_cast<uint32_t>(number));
  epoch.epoch_id = hash_bytes(fmt::format("lost epoch {}", number));
  epoch.step = kStepUnknown;
  epoch.time = std::numeric_limits<double>::quiet_NaN();
  epoch.recovered = Recovered::kWhole;
  take_record({epoch, job});
  out_.rebuilt = true;
  out_.lost.push_back(
      fmt::format("epoch {}: it was committed, and nothing says where its records are", number));
}

// Every number has an entry: its record, that of an older generation, what logs tell, or the place of a lost
// epoch.
void ManifestFinder::gather_epochs(const SalvagedEpochs* log) {
  static const SalvagedEpochs kNoLog;
  const SalvagedEpochs& newest = log == nullptr ? kNoLog : *log;
  const Manifest& manifest = out_.manifest;
  const bool closed = manifest.closed;
  const uint64_t known =
      closed ? manifest.epochs_promised : std::max<uint64_t>(manifest.epochs_promised, newest.records.size());
  for (uint64_t number = 0; number < known; ++number) {
    if (number < newest.records.size() && newest.records[number]) {
      take_record(*newest.records[number]);
      continue;
    }
    const uint32_t first = first_job(newest, number);
    const SalvagedEpochs::Record* older = nullptr;
    for (const auto& [generation, other] : epoch_logs_) {
      const bool has = generation != newest_ && number < other.records.size() && other.records[number];
      if (has && other.records[number]->job_number >= first) older = &*other.records[number];
    }
    if (older != nullptr) {
      take_record(*older);
    } else if (!take_from_logs(number, first)) {
      lose(number);
    }
  }
  // A log that is damaged there may have had more.
  const bool more = !closed && (log == nullptr || !log->generation || log->tail_slots > 0);
  for (uint64_t number = out_.manifest.epochs.size(); more; ++number) {
    if (take_from_logs(number, first_job(newest, number))) continue;
    if (!misplaced_.unknown.contains(EpochNumber(static_cast<uint32_t>(number)))) break;
    lose(number);
  }
}

Status ManifestFinder::take_epochs() {
  Manifest& manifest = out_.manifest;
  const auto salvaged = newest_ ? epoch_logs_.find(*newest_) : epoch_logs_.end();
  const bool document_whole = newest_ && documents_.contains(*newest_);
  if (document_whole) {
    Result<EpochLogContent> log = read_epoch_log(device_, directory_, manifest);
    if (log.ok()) {
      manifest.epochs = std::move(log->epochs);
      if (log->damaged_copies > 0) {
        out_.found.push_back(fmt::format("{}: a record is damaged, and its second copy is whole",
                                         epoch_log_path(directory_, *newest_)));
      }
      return {};
    }
    if (!is_damage(log.status())) return log.status();
    out_.found.push_back(std::string(log.status().message()));
  } else if (salvaged == epoch_logs_.end()) {
    out_.found.push_back(fmt::format("{}: no epoch log", directory_));
  }
  gather_epochs(salvaged != epoch_logs_.end() ? &salvaged->second : nullptr);
  settle_jobs();
  return {};
}

uint32_t ManifestFinder::job_index(uint32_t number) {
  Manifest& manifest = out_.manifest;
  if (const auto index = manifest.job_index(number)) return static_cast<uint32_t>(*index);
  JobEntry job = job_of_logs(logs_, number);
  if (job.partitioner == kLostPartitioner)
    out_.lost.push_back(fmt::format("the name of the partitioner of job {}", number));
  const auto place = std::find_if(manifest.jobs.begin(), manifest.jobs.end(),
                                  [&](const JobEntry& other) { return other.number > number; });
  const auto inserted = manifest.jobs.insert(place, std::move(job));
  out_.rebuilt = true;
  return static_cast<uint32_t>(inserted - manifest.jobs.begin());
}

// Jobs by their index, and tallies of the epochs that came from logs.
void ManifestFinder::settle_jobs() {
  Manifest& manifest = out_.manifest;
  for (const uint32_t number : jobs_of_epochs_) job_index(number);
  for (size_t i = 0; i < manifest.epochs.size(); ++i) {
    const uint32_t origin = manifest.epochs[i].origin;
    manifest.has_moved = manifest.has_moved || origin != 0;
    if (origin != 0) job_index(origin);
  }
  // The job whose open epoch may be recovered.
  const bool last_unknown = newest_ && !documents_.contains(*newest_);
  if (last_unknown && logs_.lower_bound({*newest_, PartitionNumber(0)}) != logs_.end()) job_index(*newest_);
  for (size_t i = 0; i < manifest.epochs.size(); ++i) {
    EpochEntry& epoch = manifest.epochs[i];
    epoch.job = job_index(jobs_of_epochs_[i]);
    if (epoch.recovered != Recovered::kWhole || epoch.records != 0) continue;
    const JobEntry& job = manifest.job_of(epoch);
    for (PartitionNumber partition(0); partition < job.ranks; ++partition) {
      const PartFacts part = look_at_part(logs_, job, epoch, partition);
      epoch.records += part.committed.value_or(part.found.records);
      epoch.data_bytes += part.found.data_bytes;
      epoch.digest += part.found.digest;
      epoch.large.add(part.found.large);
      if (part.committed || manifest.lost_part(epoch, partition) != nullptr) continue;
      manifest.lost.push_back({epoch.epoch_id, partition,
                               "the record of this epoch was lost, and no index log says what it had here"});
    }
  }
}

Result<FoundManifest> ManifestFinder::run() {
  SWALE_RETURN_IF_ERROR(read_documents());
  SWALE_RETURN_IF_ERROR(read_epoch_logs());
  SWALE_RETURN_IF_ERROR(choose_generation());
  for (const auto& [number, what] : damaged_documents_) {
    if (number >= newest_) out_.found.push_back(what);
  }
  take_document();
  if (newest_ && !in_folders_.contains(*newest_) && !damaged_documents_.contains(*newest_))
    out_.found.push_back(fmt::format("{}: is missing", generation_path(directory_, *newest_)));
  if (in_swale_json_ && in_swale_json_ != newest_) {
    out_.found.push_back(fmt::format("{}: is of generation {}, the newest is {}", manifest_path(directory_),
                                     *in_swale_json_, newest_.value_or(0)));
  }
  remove_misplaced();
  SWALE_RETURN_IF_ERROR(take_epochs());
  return std::move(out_);
}

}  // namespace

Result<FoundManifest> find_manifest(io::Device& device, const std::string& directory, Logs* logs) {
  return ManifestFinder(device, directory, logs).run();
}

}  // namespace swale::imd
