#include "imd/optimize/free.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "imd/check/verify_clusters.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/optimize/epoch_copier.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/write/writer_lock.h"

namespace swale::imd {
namespace {

constexpr char kMarkName[] = "free";  // in the folder of a job that copies epochs

std::optional<uint32_t> parse_whole(std::string_view text) {
  uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

// False: the text is none.
bool keep_part(std::string_view part, std::vector<bool>* kept) {
  constexpr std::string_view kEvery = "every=";
  if (part == "last") {
    if (!kept->empty()) kept->back() = true;
    return true;
  }
  if (part.starts_with(kEvery)) {
    const auto step = parse_whole(part.substr(kEvery.size()));
    for (size_t at = 0; step && *step > 0 && at < kept->size(); at += *step) (*kept)[at] = true;
    return step && *step > 0;
  }
  const size_t colon = part.find(':');
  const auto first = parse_whole(part.substr(0, colon));
  const auto last = colon == std::string_view::npos ? first : parse_whole(part.substr(colon + 1));
  if (!first || !last || *first > *last) return false;
  for (size_t at = *first; at <= *last && at < kept->size(); ++at) (*kept)[at] = true;
  return true;
}

// Data, index, auxiliary tables: all but values.
std::vector<std::string> logs_of(const std::string& directory, LogId log) {
  return {data_log_path(directory, log), index_log_path(directory, log), table_log_path(directory, log)};
}

class Freer {
 public:
  Freer(io::Device& device, const std::string& directory, const FreeOptions& options)
      : options_(options), files_{device, directory, {}, counters_} {}

  Result<FreeReport> run();

 private:
  Status lock();
  Status look();
  Status choose();
  bool can_go(uint32_t job) const;
  Status measure();
  Status check_clusters();
  Status copy_and_commit();
  Status copy();
  Status commit();
  void take_back();
  Status unlink();
  Status remove_leftovers();
  Status remove(const std::string& path);
  std::string mark(uint32_t job) const {
    return fmt::format("{}/{}", job_folder(files_.directory, job), kMarkName);
  }

  const FreeOptions& options_;
  ReadCounters counters_;
  const ReaderFiles files_;
  std::optional<WriterLock> writer_;
  std::optional<io::LockFile> passes_;
  const uint64_t job_id_ = random_number();
  Manifest manifest_;
  ClusterList list_;
  std::vector<bool> covered_;  // by epoch: a live cluster has it
  std::vector<bool> kept_;
  std::vector<EpochNumber> freed_;
  std::vector<EpochNumber> copied_;
  std::set<uint32_t> emptied_;  // numbers of jobs whose logs go
  JobEntry job_;
  FreeReport report_;
};

Result<FreeReport> Freer::run() {
  SWALE_RETURN_IF_ERROR(refuse_cluster(files_.device, files_.directory));
  if (!options_.dry_run) SWALE_RETURN_IF_ERROR(lock());
  SWALE_RETURN_IF_ERROR(look());
  SWALE_RETURN_IF_ERROR(choose());
  SWALE_RETURN_IF_ERROR(measure());
  if (options_.dry_run) return report_;
  SWALE_RETURN_IF_ERROR(remove_leftovers());
  if (report_.plan.nothing()) return report_;
  if (options_.approve) SWALE_RETURN_IF_ERROR(options_.approve(report_.plan));
  if (!freed_.empty()) {
    SWALE_RETURN_IF_ERROR(check_clusters());
    SWALE_RETURN_IF_ERROR(copy_and_commit());
    report_.job = job_.number;
  }
  SWALE_RETURN_IF_ERROR(unlink());
  return report_;
}

Status Freer::lock() {
  SWALE_RETURN_IF_ERROR(load_manifest(files_.device, files_.directory).status());
  io::LockRequest request{.job = lock_job(job_id_), .lease = options_.lease};
  SWALE_ASSIGN_OR_RETURN(writer_, acquire_writer_lock(files_.device, files_.directory, request));
  SWALE_ASSIGN_OR_RETURN(const bool clusters, files_.device.exists(clusters_folder(files_.directory)));
  if (!clusters) return {};
  SWALE_ASSIGN_OR_RETURN(
      passes_,
      io::LockFile::acquire(files_.device, clusters_folder(files_.directory) + "/optimize.lock", request));
  return {};
}

Status Freer::look() {
  SWALE_ASSIGN_OR_RETURN(manifest_, load_manifest(files_.device, files_.directory));
  // Without the lock of the passes there were none.
  if (options_.dry_run || passes_) {
    SWALE_ASSIGN_OR_RETURN(list_, load_clusters(files_.device, files_.directory));
  }
  SWALE_ASSIGN_OR_RETURN(kept_, epochs_to_keep(options_.keep, manifest_.epochs.size()));
  covered_.assign(manifest_.epochs.size(), false);
  for (const ClusterEntry& cluster : list_.clusters) {
    report_.plan.cluster_epochs = std::max<uint64_t>(report_.plan.cluster_epochs, cluster.epochs.size());
    for (const ClusterEntry::Epoch& epoch : cluster.epochs) {
      if (manifest_.find_epoch(epoch.epoch, epoch.epoch_id) != nullptr) covered_[epoch.epoch] = true;
    }
  }
  return {};
}

// Whether each epoch that the job's logs hold is in a cluster or can be copied, and one goes.
bool Freer::can_go(uint32_t job) const {
  bool any = false;
  for (const EpochEntry& epoch : manifest_.epochs) {
    if (epoch.job != job || epoch.freed) continue;
    if (manifest_.has_lost(epoch) || !(covered_[epoch.epoch] || kept_[epoch.epoch])) return false;
    any = any || !kept_[epoch.epoch];
  }
  return any;
}

Status Freer::choose() {
  FreePlan& plan = report_.plan;
  std::vector<bool> goes(manifest_.jobs.size());
  for (uint32_t job = 0; job < goes.size(); ++job) goes[job] = can_go(job);
  std::set<uint32_t> holds;  // numbers of jobs whose logs hold an epoch afterwards
  std::set<uint32_t> had;    // numbers of jobs whose logs held one that has been moved, or is going to be
  for (const EpochEntry& epoch : manifest_.epochs) {
    const uint32_t number = manifest_.job_of(epoch).number;
    if (epoch.origin != 0) had.insert(epoch.origin);
    if (epoch.freed || goes[epoch.job]) had.insert(number);
    if (epoch.freed) continue;
    if (!goes[epoch.job]) {
      holds.insert(number);
      plan.epochs_left += kept_[epoch.epoch] ? 0 : 1;
    } else if (kept_[epoch.epoch]) {
      copied_.push_back(epoch.epoch);
    } else {
      freed_.push_back(epoch.epoch);
    }
  }
  for (const uint32_t number : had) {
    if (!holds.contains(number)) emptied_.insert(number);
  }
  plan.epochs = freed_.size();
  plan.epochs_copied = copied_.size();
  return {};
}

Status Freer::measure() {
  FreePlan& plan = report_.plan;
  // As a new run of these records: their heads, sketch entries, ends of blocks; the index.
  constexpr uint64_t kOverheadBytes = 12;
  constexpr uint64_t kFixedBytes = 256 * kKiB;
  for (const EpochNumber number : copied_) {
    const EpochEntry& epoch = manifest_.epochs[number];
    plan.copy_bytes_max +=
        epoch.data_bytes + epoch.data_bytes / 25 + epoch.records * kOverheadBytes + kFixedBytes;
  }
  for (const uint32_t number : emptied_) {
    const auto index = manifest_.job_index(number);
    if (!index) continue;
    for (PartitionNumber partition(0); partition < manifest_.jobs[*index].ranks; ++partition) {
      for (const std::string& path : logs_of(files_.directory, {number, partition, manifest_.log_place})) {
        const auto file = files_.device.open(path, io::OpenMode::kRead);
        if (file.status().code() == Code::kNotFound) continue;
        SWALE_RETURN_IF_ERROR(file.status());
        SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, (*file)->size());
        plan.bytes += bytes;
        ++plan.files;
      }
    }
  }
  return {};
}

// They are about to be the only copy.
Status Freer::check_clusters() {
  VerifyReport report;
  verify_clusters(files_, manifest_, 1, &report);
  if (report.problems.empty()) return {};
  return corruption("{}; nothing was changed: make the cluster anew with `swale optimize --full`",
                    report.problems.front().message());
}

Status Freer::copy_and_commit() {
  SWALE_ASSIGN_OR_RETURN(const uint32_t number, claim_job(files_.device, files_.directory));
  job_ = {.number = number, .id = lock_job(job_id_), .ranks = 1, .ways = 1, .partitioner = "hash"};
  const Status done = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(copy());
    return commit();
  });
  if (!done.ok()) static_cast<void>(contain([&] { take_back(); }));
  return done;
}

Status Freer::copy() {
  // Jobs before this one cannot commit any more: only now their epochs are final.
  SWALE_ASSIGN_OR_RETURN(const Manifest now, load_manifest(files_.device, files_.directory));
  const bool same = now.generation == manifest_.generation && now.epochs.size() == manifest_.epochs.size() &&
                    manifest_.first_dropped(now) == nullptr;
  if (!same) {
    return error(Code::kAborted, Scope::kFile, "{}: a job has written to it meanwhile; run the command again",
                 files_.directory);
  }
  if (copied_.empty()) return {};
  SWALE_RETURN_IF_ERROR(io::replace_file(files_.device, mark(job_.number), ""));
  PartitionCache partitions(files_, manifest_);
  SWALE_ASSIGN_OR_RETURN(const auto copier, EpochCopier::create(files_, manifest_, job_));
  for (const EpochNumber epoch : copied_)
    SWALE_RETURN_IF_ERROR(copier->copy(manifest_.epochs[epoch], partitions));
  return copier->finish();
}

Status Freer::commit() {
  Manifest next = next_generation(manifest_, job_);
  const auto index = static_cast<uint32_t>(next.jobs.size() - 1);
  const auto move = [&](EpochNumber number, bool freed) {
    EpochEntry& epoch = next.epochs[number];
    epoch.origin = manifest_.origin_of(epoch);
    epoch.job = index;
    epoch.freed = freed;
    epoch.summary = {};  // it is of the partitions of the logs that go
  };
  for (const EpochNumber epoch : freed_) move(epoch, true);
  for (const EpochNumber epoch : copied_) move(epoch, false);
  next.has_moved = true;
  const JobFence fence(files_.device, files_.directory, job_.number, &*writer_);
  SWALE_RETURN_IF_ERROR(passes_->check());
  SWALE_RETURN_IF_ERROR(fence.check());
  SWALE_RETURN_IF_ERROR(
      write_generation(files_.device, files_.directory, next, manifest_.continues).status());
  SWALE_RETURN_IF_ERROR(fence.check());
  next.closed = true;
  return rewrite_document(files_.device, files_.directory, next);
}

// The copies, unless the generation is valid all the same: what has failed may have come after that.
void Freer::take_back() {
  const Result<Manifest> now = load_manifest(files_.device, files_.directory);
  if (!now.ok() || now->generation == job_.number) return;
  for (const std::string& path :
       logs_of(files_.directory, {job_.number, PartitionNumber(0), manifest_.log_place}))
    static_cast<void>(files_.device.remove(path));
  static_cast<void>(files_.device.remove(mark(job_.number)));
}

Status Freer::remove(const std::string& path) {
  const Status removed = files_.device.remove(path);
  return removed.code() == Code::kNotFound ? Status() : removed;
}

// The generation that does without them is durable.
Status Freer::unlink() {
  Status first;
  const auto note = [&](const Status& status) {
    if (first.ok() && !status.ok()) first = status;
  };
  for (const uint32_t number : emptied_) {
    const auto index = manifest_.job_index(number);
    if (!index) continue;
    const uint32_t ranks = manifest_.jobs[*index].ranks;
    for (PartitionNumber partition(0); partition < ranks; ++partition) {
      for (const std::string& path : logs_of(files_.directory, {number, partition, manifest_.log_place}))
        note(remove(path));
      const bool last = partition + 1 == ranks || (partition + 1) % 1'024 == 0;
      if (!last) continue;
      const std::string folder = log_folder(files_.directory, {number, partition, manifest_.log_place});
      const Result<bool> there = files_.device.exists(folder);
      if (there.ok() && *there) note(files_.device.sync_directory(folder));
    }
  }
  if (first.ok()) return first;
  return first.with_context(
      fmt::format("{}: not all logs could be removed; run the command again", files_.directory));
}

// Copies of a call that was killed before its generation was valid.
Status Freer::remove_leftovers() {
  const Result<std::vector<std::string>> names = files_.device.list(jobs_folder(files_.directory));
  SWALE_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const auto number = parse_job_folder(name);
    if (!number || manifest_.job_index(*number)) continue;
    SWALE_ASSIGN_OR_RETURN(const bool marked, files_.device.exists(mark(*number)));
    if (!marked) continue;
    const LogId log{*number, PartitionNumber(0), manifest_.log_place};
    for (const std::string& path : logs_of(files_.directory, log)) SWALE_RETURN_IF_ERROR(remove(path));
    SWALE_RETURN_IF_ERROR(files_.device.sync_directory(log_folder(files_.directory, log)));
    SWALE_RETURN_IF_ERROR(remove(mark(*number)));
  }
  return {};
}

}  // namespace

Result<std::vector<bool>> epochs_to_keep(std::string_view keep, size_t epochs) {
  std::vector<bool> kept(epochs, false);
  if (keep == "none") return kept;
  for (;;) {
    const size_t comma = keep.find(',');
    const std::string_view part = keep.substr(0, comma);
    if (!keep_part(part, &kept)) {
      return invalid_argument(
          "\"{}\" says not which epochs to keep: expected last, N, A:B, every=N, or several of these with "
          "commas between them, or none",
          part);
    }
    if (comma == std::string_view::npos) return kept;
    keep.remove_prefix(comma + 1);
  }
}

Result<FreeReport> free_directory(io::Device& device, const std::string& directory,
                                  const FreeOptions& options) {
  SWALE_RETURN_IF_ERROR(epochs_to_keep(options.keep, 0).status());
  // A directory that is made anew at its place meanwhile is another one.
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::Device> anchored, device.anchored(directory));
  return Freer(*anchored, directory, options).run();
}

}  // namespace swale::imd
