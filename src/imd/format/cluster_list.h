// ClusterList: which clusters of a massive directory live: derived copies of some of its epochs, by key
// (docs/design/clusters.md). Each pass of `swale optimize` claims the next number by making the folder
// DIR/clusters/NNNN, as jobs claim theirs (generation.h), and at its end writes manifest.json there, which
// lists all clusters that live from then on. The highest number with a manifest.json is the truth.
// DIR/clusters/manifest.json is a copy of it, which counts for its own number only.
//
// A cluster is itself a massive directory, DIR/clusters/NNNN, of one rank and one epoch, whose values are
// series (series.h). Its logs, and the copy of the list, lie beside that folder: whoever opens a directory
// with nothing in memory waits for one folder, DIR/clusters, not for four. Only answers of epochs that were
// freed (EpochEntry::freed) depend on clusters: else what is damaged or missing is not used.
// Format: docs/formats/clusters.md. Threads: values and free functions.
// Limits: as for a manifest; an epoch is in one cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "store/job_claim.h"

namespace swale::imd {

struct ClusterEntry {
  struct Epoch {
    EpochNumber epoch = {};
    uint64_t epoch_id = 0;  // as in the epoch log

    bool operator==(const Epoch&) const = default;
  };
  uint32_t number = 0;    // of its folder
  uint64_t epoch_id = 0;  // of the one epoch of its own directory: tells it from another one at its place
  uint32_t ranks = 1;     // that made it: its partitions, each a range of hashes
  uint64_t series = 0;
  uint64_t bytes = 0;                         // of these, with their keys
  std::vector<Epoch> epochs;                  // ascending; a series names them by index
  bool columns = false;                       // series of it may have columns (series_columns.h)
  LogPlace log_place = LogPlace::kInFolders;  // of its own directory

  bool operator==(const ClusterEntry&) const = default;
};

struct ClusterList {
  uint32_t generation = 0;  // the number of the pass that wrote it; 0: there is no list
  std::vector<ClusterEntry> clusters;

  std::string encode() const;
  static Result<ClusterList> decode(Bytes json, const std::string& path);
  bool operator==(const ClusterList&) const = default;
};

std::string cluster_folder(const std::string& directory, uint32_t number);
std::string cluster_list_path(const std::string& directory, uint32_t number);
std::string cluster_list_copy_path(const std::string& directory);

// The newest list. One that is damaged, or of a newer Swale, is an error: no older one is taken in its place.
Result<ClusterList> load_clusters(io::Device& device, const std::string& directory);

// Whether the list and its copy are `list`, the newest.
Status check_cluster_lists(io::Device& device, const std::string& directory, const ClusterList& list);

// kInvalidArgument if the directory is a cluster of another one: its epoch is not a job's, and another copy
// of it in its place would not be the cluster that the list names.
Status refuse_cluster(io::Device& device, const std::string& directory);

// How the numbers of passes are claimed.
store::ClaimNames cluster_claims(const std::string& directory);

}  // namespace swale::imd
