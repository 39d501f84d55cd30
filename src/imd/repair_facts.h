// What the logs of all partitions say about epochs: of which numbers and ids there are whole runs or segments, and
// which rank counts and ways their keys can have been spread over.
//
// Threads: values. Memory: an inventory per partition (repair_log.h), 200 bytes per epoch, partition and way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "imd/manifest.h"
#include "imd/repair_log.h"
#include "run/footer.h"

namespace swale::imd {

struct PartitionFacts {
  bool has_data = false;
  DataInventory data;
  std::vector<FoundValues> values;
  std::optional<run::Footer> footer;  // none: no index log, or none of its footers is whole
};
using Partitions = std::map<uint32_t, PartitionFacts>;

struct EpochFacts {
  struct Range {
    Hash least = ~Hash{0};
    Hash greatest = 0;
  };
  uint32_t epoch = 0;
  uint64_t epoch_id = 0;
  uint32_t ways = 0;             // as segments say; 0: there are none
  uint32_t greatest_way = 0;     // of a run
  std::set<uint32_t> indexed;    // partitions whose footer names it
  std::set<uint32_t> with_runs;  // that have whole runs of it
  bool lost_runs = false;        // some partition's segments count records, but it has no run
  std::map<std::pair<uint32_t, uint32_t>, Range> keys;  // by partition and way

  // The least rank count from `ranks_min` to `ranks_max` that sends every key where it lies; none: no such.
  std::optional<JobEntry> shape(uint32_t ranks_min, uint32_t ranks_max) const;
  uint32_t partitions_min() const;  // one more than the greatest partition that has anything of it
};

std::map<uint64_t, EpochFacts> gather_epochs(const Partitions& partitions);

// The partition's whole runs of an epoch, by place, each number once: of a run and its copy, the copy. Only runs that
// begin at `from_block` or later.
std::vector<FoundRun> runs_of(const DataInventory& data, uint64_t epoch_id, uint64_t from_block = 0);

// Where the committed part of the data log ends, as far as runs and segments tell.
uint64_t committed_end(const PartitionFacts& facts, const Manifest& manifest);

// What the partition's value log has of an epoch.
run::ValueRange values_of(const PartitionFacts& facts, uint64_t epoch_id);

// Records, bytes and digest of all whole runs.
void add_runs(const std::vector<FoundRun>& runs, EpochEntry* epoch);

// A manifest from what the logs agree on: epochs 0, 1, 2, … that all partitions of a possible job have. Steps, times and
// the schema are unknown; consecutive epochs of one shape are said to be of one job.
struct RebuiltManifest {
  Manifest manifest;
  std::optional<uint32_t>
      unexplained;  // the next epoch is there, but no number of ranks puts its keys where they lie
};
RebuiltManifest rebuild_manifest(const Partitions& partitions);

}  // namespace swale::imd
