#include "imd/read/reader_clusters.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "imd/format/generation.h"

namespace swale::imd {

Result<std::unique_ptr<Cluster>> Cluster::open(const ReaderFiles& files, const ClusterEntry& entry) {
  ReaderFiles own_files = files;
  own_files.directory = cluster_folder(files.directory, entry.number);
  SWALE_ASSIGN_OR_RETURN(Manifest own, load_manifest(files.device, own_files.directory));
  const bool right = own.epochs.size() == 1 && own.epochs[0].epoch_id == entry.epoch_id &&
                     own.job_of(own.epochs[0]).number == 1 &&
                     own.job_of(own.epochs[0]).ranks == entry.ranks && own.job_of(own.epochs[0]).ways == 1 &&
                     own.layout.format == run::ShuffleFormat::kBase && own.lost.empty() &&
                     own.log_place == entry.log_place;
  if (!right) {
    return corruption("{}: is not the cluster {:016x} that the list of clusters names", own_files.directory,
                      entry.epoch_id);
  }
  return std::unique_ptr<Cluster>(new Cluster(std::move(own_files), std::move(own), entry));
}

std::unique_ptr<Cluster> Cluster::as_listed(const ReaderFiles& files, const ClusterEntry& entry) {
  ReaderFiles own_files = files;
  own_files.directory = cluster_folder(files.directory, entry.number);
  Manifest own;
  own.log_place = entry.log_place;
  own.jobs.push_back(
      {.number = 1, .id = {}, .ranks = entry.ranks, .ways = 1, .partitioner = std::string(kHashPartitioner)});
  own.epochs.push_back({.epoch_id = entry.epoch_id, .records = entry.series});
  return std::unique_ptr<Cluster>(new Cluster(std::move(own_files), std::move(own), entry));
}

std::shared_ptr<ClusterSet> ClusterSet::make(const ReaderFiles& files, const ClusterList& list,
                                             const Manifest& manifest, Which which) {
  if (which == Which::kFreed && !manifest.has_moved) return nullptr;
  auto set = std::make_shared<ClusterSet>();
  set->covered_.resize(manifest.epochs.size());
  for (const ClusterEntry& entry : list.clusters) {
    std::vector<bool> answers;
    for (const ClusterEntry::Epoch& epoch : entry.epochs) {
      const EpochEntry* const of_log = manifest.find_epoch(epoch.epoch, epoch.epoch_id);
      const bool wanted = of_log != nullptr && (which == Which::kAll || of_log->freed);
      answers.push_back(wanted && !set->covered_[epoch.epoch]);
    }
    if (std::ranges::find(answers, true) == answers.end()) continue;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i]) set->covered_[entry.epochs[i].epoch] = true;
    }
    set->bytes_per_key_ += entry.bytes / std::max<uint64_t>(entry.series, 1);
    set->members_.push_back({Cluster::as_listed(files, entry), std::move(answers)});
  }
  return set->members_.empty() ? nullptr : set;
}

void ClusterSet::give_up(const Status& why) {
  if (!usable_.exchange(false)) return;
  log_warn(
      "{}; the epochs themselves answer instead, until this reader is opened again. `swale optimize "
      "--full` makes clusters anew",
      why.message());
}

}  // namespace swale::imd
