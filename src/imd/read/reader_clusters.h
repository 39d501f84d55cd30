// ClusterSet: the clusters that answer for epochs of one view (docs/design/clusters.md).
//
// Only the epoch log decides which epochs of a cluster count: it answers for those whose number has this very
// id there. No answer depends on clusters, but those of epochs that were freed: when a query fails with
// clusters and succeeds without them, the set is not used any more. Making a set reads nothing.
//
// Threads: a Cluster is immutable, its cache of logs thread-safe; use and give_up by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "imd/format/cluster_list.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"

namespace swale::imd {

class Cluster {
 public:
  // kCorruption if the cluster's own directory is not the one that the list names.
  static Result<std::unique_ptr<Cluster>> open(const ReaderFiles& files, const ClusterEntry& entry);
  // Reads nothing: what the directory has is known from the list and the format (one epoch of one job of one
  // way). `logs` fails if it is not so: the footer of its index names the epoch's id.
  static std::unique_ptr<Cluster> as_listed(const ReaderFiles& files, const ClusterEntry& entry);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const ClusterEntry& entry() const { return entry_; }
  const ReaderFiles& files() const { return files_; }
  // The one epoch of its own directory.
  const EpochEntry& own_epoch() const { return own_.epochs[0]; }
  uint32_t epochs() const { return static_cast<uint32_t>(entry_.epochs.size()); }
  // A key's series are in the partition that its hash chooses.
  uint32_t partitions() const { return entry_.ranks; }
  // The logs with the series of a partition. Raises `*depth` as PartitionCache::get does.
  Result<std::shared_ptr<const PartitionLogs>> logs(PartitionNumber partition, uint32_t* depth) {
    return partitions_.get(own_.epochs[0], partition, depth);
  }

 private:
  Cluster(ReaderFiles files, Manifest own, const ClusterEntry& entry)
      : files_(std::move(files)), own_(std::move(own)), entry_(entry), partitions_(files_, own_) {}

  const ReaderFiles files_;
  const Manifest own_;
  const ClusterEntry entry_;
  PartitionCache partitions_;
};

class ClusterSet {
 public:
  // nullptr: no cluster answers for an epoch of `manifest`. kFreed: only for epochs that no log has.
  enum class Which { kAll, kFreed };
  static std::shared_ptr<ClusterSet> make(const ReaderFiles& files, const ClusterList& list,
                                          const Manifest& manifest, Which which = Which::kAll);

  struct Member {
    std::unique_ptr<Cluster> cluster;
    std::vector<bool> answers;  // by index: the epoch is the view's
  };
  const std::vector<Member>& members() const { return members_; }
  bool covers(EpochNumber epoch) const { return covered_[epoch]; }
  // Bytes of one key's series in all clusters, on average.
  uint64_t bytes_per_key() const { return bytes_per_key_; }

  bool usable() const { return usable_.load(std::memory_order_relaxed); }
  // A query failed with them, so says `why`, and succeeded without. Warns once.
  void give_up(const Status& why);

 private:
  std::vector<Member> members_;
  std::vector<bool> covered_;  // by epoch of the view
  uint64_t bytes_per_key_ = 0;
  std::atomic<bool> usable_{true};
};

}  // namespace swale::imd
