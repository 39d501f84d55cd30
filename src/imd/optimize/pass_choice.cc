#include "imd/optimize/pass_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "imd/optimize/pass_runs.h"
#include "imd/read/reader_clusters.h"

namespace swale::imd {
namespace {

// The epochs that no cluster of the list has.
std::vector<EpochNumber> uncovered(const Manifest& manifest, const ClusterList& list) {
  std::set<EpochNumber> covered;
  for (const ClusterEntry& cluster : list.clusters) {
    for (const ClusterEntry::Epoch& epoch : cluster.epochs) {
      if (manifest.find_epoch(epoch.epoch, epoch.epoch_id) != nullptr) covered.insert(epoch.epoch);
    }
  }
  std::vector<EpochNumber> epochs;
  for (const EpochEntry& epoch : manifest.epochs) {
    if (!covered.contains(epoch.epoch)) epochs.push_back(epoch.epoch);
  }
  return epochs;
}

class Chooser {
 public:
  Chooser(const ReaderFiles& files, const Manifest& manifest, const PassRules& rules)
      : files_(files), manifest_(manifest), rules_(rules), runs_(files, manifest, rules.ranks) {}

  Result<PassChoice> choose() {
    SWALE_RETURN_IF_ERROR(look());
    const bool enough = to_copy().size() >= std::max<uint64_t>(rules_.epochs_min, 1);
    if (enough) SWALE_RETURN_IF_ERROR(merge_similar());
    choice_.epochs = to_copy();
    choice_.epochs_lost = uncovered(manifest_, choice_.list).size() - choice_.epochs.size();
    if (enough && !rules_.full) SWALE_RETURN_IF_ERROR(fit_memory());
    return std::move(choice_);
  }

 private:
  Status look();
  bool is_only_copy(const ClusterEntry& cluster) const;
  bool has_freed(const ClusterEntry& cluster) const;
  void replace(const ClusterEntry& cluster);
  Status merge_similar();
  Result<bool> fits(std::span<const ClusterEntry> clusters);
  Status fit_memory();
  std::vector<EpochNumber> to_copy() const;

  const ReaderFiles& files_;
  const Manifest& manifest_;
  const PassRules& rules_;
  PassRuns runs_;
  std::set<uint32_t> stuck_;  // clusters that cannot be opened, and have what no log has
  PassChoice choice_;
};

// Which clusters stay: those that answer for all of their epochs, and those whose epochs cannot be read
// again.
Status Chooser::look() {
  Result<ClusterList> list = load_clusters(files_.device, files_.directory);
  if (!list.ok() && (manifest_.has_moved || list.status().code() != Code::kCorruption)) return list.status();
  if (!list.ok()) log_warn("{}; clusters are made anew", list.status().message());
  if (list.ok()) choice_.list = std::move(*list);
  std::erase_if(choice_.list.clusters, [&](const ClusterEntry& cluster) {
    const auto lives = [&](const ClusterEntry::Epoch& epoch) {
      return manifest_.find_epoch(epoch.epoch, epoch.epoch_id) != nullptr;
    };
    const bool wanted = !rules_.full && std::ranges::all_of(cluster.epochs, lives);
    const bool freed = has_freed(cluster);
    const bool only_copy = is_only_copy(cluster);
    const bool replaced = !wanted && !only_copy;
    if (replaced && !freed) return true;
    const auto opened = Cluster::open(files_, cluster);
    const bool gone = opened.status().code() == Code::kNotFound;
    if (!opened.ok() && (freed || (only_copy && !gone))) {
      log_warn("{}; it stays, because it has epochs that are nowhere else: restore it from a copy",
               opened.status().message());
      stuck_.insert(cluster.number);
      return false;
    }
    if (!opened.ok()) log_warn("{}; it is made anew", opened.status().message());
    if (opened.ok() && replaced) replace(cluster);
    return !opened.ok() || replaced;
  });
  return {};
}

// No log has an epoch of it any more.
bool Chooser::has_freed(const ClusterEntry& cluster) const {
  return std::ranges::any_of(cluster.epochs, [&](const ClusterEntry::Epoch& epoch) {
    const EpochEntry* const entry = manifest_.find_epoch(epoch.epoch, epoch.epoch_id);
    return entry != nullptr && entry->freed;
  });
}

// The new cluster takes its place, and reads from it what no log has.
void Chooser::replace(const ClusterEntry& cluster) {
  if (has_freed(cluster)) choice_.sources.push_back({Cluster::as_listed(files_, cluster)});
}

// What the new cluster gets: epochs of logs, and freed ones of the clusters that it replaces.
std::vector<EpochNumber> Chooser::to_copy() const {
  std::vector<EpochNumber> epochs = epochs_to_optimize(manifest_, choice_.list);
  std::set<EpochNumber> freed;
  for (const FreedSource& source : choice_.sources) {
    for (const ClusterEntry::Epoch& epoch : source.cluster->entry().epochs) {
      const EpochEntry* const entry = manifest_.find_epoch(epoch.epoch, epoch.epoch_id);
      if (entry != nullptr && entry->freed) freed.insert(epoch.epoch);
    }
  }
  for (const EpochNumber epoch : uncovered(manifest_, choice_.list)) {
    if (freed.contains(epoch)) epochs.push_back(epoch);
  }
  std::ranges::sort(epochs);
  return epochs;
}

// Parts of an epoch itself are lost.
bool Chooser::is_only_copy(const ClusterEntry& cluster) const {
  return std::ranges::any_of(cluster.epochs, [&](const ClusterEntry::Epoch& epoch) {
    const EpochEntry* const entry = manifest_.find_epoch(epoch.epoch, epoch.epoch_id);
    return entry != nullptr && manifest_.has_lost(*entry);
  });
}

// The new cluster and the three before it become one, if the longest of these is less than twice as long as
// the new one, and if all of their runs fit into memory: so an epoch is copied once for each factor of four.
Status Chooser::merge_similar() {
  constexpr size_t kBefore = 3;
  std::vector<ClusterEntry>& clusters = choice_.list.clusters;
  for (size_t epochs = to_copy().size(); epochs > 0 && clusters.size() >= kBefore;) {
    const std::span<const ClusterEntry> last(clusters.end() - kBefore, clusters.end());
    size_t longest = 0;
    bool only_copy = false;
    for (const ClusterEntry& cluster : last) {
      longest = std::max(longest, cluster.epochs.size());
      only_copy = only_copy || is_only_copy(cluster) || stuck_.contains(cluster.number);
    }
    if (longest >= 2 * epochs || only_copy) break;
    SWALE_ASSIGN_OR_RETURN(const bool fit, fits(last));
    if (!fit) break;
    for (const ClusterEntry& cluster : last) {
      epochs += cluster.epochs.size();
      replace(cluster);
    }
    clusters.erase(clusters.end() - kBefore, clusters.end());
  }
  return {};
}

// Whether what these clusters have, too, can be copied by one pass: not if an index log is damaged.
Result<bool> Chooser::fits(std::span<const ClusterEntry> clusters) {
  std::vector<EpochNumber> epochs = to_copy();
  for (const ClusterEntry& cluster : clusters) {
    for (const ClusterEntry::Epoch& epoch : cluster.epochs) {
      if (manifest_.find_epoch(epoch.epoch, epoch.epoch_id) != nullptr) epochs.push_back(epoch.epoch);
    }
  }
  uint64_t sum = 0;
  for (const EpochNumber epoch : epochs) {
    const Result<uint64_t> more = runs_.of(epoch);
    if (more.status().code() == Code::kCorruption) return false;
    SWALE_RETURN_IF_ERROR(more.status());
    sum += *more;
  }
  return sum <= PassRuns::most_in(rules_.memory_bytes);
}

// Takes epochs from the first on. What only clusters have stays: they are replaced.
Status Chooser::fit_memory() {
  uint64_t sum = 0;
  std::vector<EpochNumber> taken;
  for (const EpochNumber epoch : choice_.epochs) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t more, runs_.of(epoch));
    sum += more;
    const bool fits = sum <= PassRuns::most_in(rules_.memory_bytes);
    if (more == 0 || taken.empty() || fits) taken.push_back(epoch);
  }
  choice_.epochs_left = choice_.epochs.size() - taken.size();
  choice_.epochs = std::move(taken);
  return {};
}

}  // namespace

Result<PassChoice> choose_epochs(const ReaderFiles& files, const Manifest& manifest, const PassRules& rules) {
  return Chooser(files, manifest, rules).choose();
}

void point_sources(const Manifest& manifest, std::span<const EpochNumber> epochs,
                   std::span<FreedSource> sources) {
  std::set<EpochNumber> read;
  for (FreedSource& source : sources) {
    source.indexes.clear();
    for (const ClusterEntry::Epoch& epoch : source.cluster->entry().epochs) {
      const EpochEntry* const entry = manifest.find_epoch(epoch.epoch, epoch.epoch_id);
      const auto place = std::ranges::lower_bound(epochs, epoch.epoch);
      const bool wanted = entry != nullptr && entry->freed && place != epochs.end() &&
                          *place == epoch.epoch && read.insert(epoch.epoch).second;
      source.indexes.push_back(wanted ? static_cast<uint32_t>(place - epochs.begin()) : FreedSource::kNone);
    }
  }
}

std::vector<EpochNumber> epochs_to_optimize(const Manifest& manifest, const ClusterList& list) {
  std::vector<EpochNumber> epochs = uncovered(manifest, list);
  std::erase_if(epochs, [&](EpochNumber epoch) {
    const EpochEntry& entry = manifest.epochs[epoch];
    return entry.freed || manifest.has_lost(entry);
  });
  return epochs;
}

}  // namespace swale::imd
