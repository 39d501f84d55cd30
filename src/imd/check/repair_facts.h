// The content of all jobs' logs by epoch, and whether everything committed still exists.
//
// Threads: values. Memory: an inventory per log (repair_log.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "imd/check/repair_log.h"
#include "imd/format/log_names.h"
#include "imd/format/manifest.h"
#include "run/footer.h"

namespace swale::imd {

// The content of one log for one epoch, committed or not.
struct LogEpoch {
  EpochNumber epoch = {};
  std::vector<FoundRun> runs;                // whole ones, by place
  std::vector<run::SegmentRecord> segments;  // all segments of the footer, of any kind
  run::ValueRange values;                    // found in the value log

  // The segments of records, if every way of the job has one and they agree; otherwise none.
  std::vector<run::SegmentRecord> agreed_segments(const JobEntry& job, EpochNumber number) const;
  // The footer's range of the value log.
  std::optional<run::ValueRange> committed_values() const;
  // Where the footer says that the auxiliary table lies.
  std::optional<run::ValueRange> table() const;
};

struct LogFacts {
  bool has_data = false;
  DataInventory data;                   // its runs are in `epochs`
  std::optional<run::Footer> footer;    // none: no index log, or none of its footers is whole
  std::map<uint64_t, LogEpoch> epochs;  // by epoch_id

  const LogEpoch& of(uint64_t epoch_id) const;
};
LogFacts gather(bool has_data, DataInventory data, const std::vector<FoundValues>& values,
                std::optional<run::Footer> footer);

using Logs = std::map<LogId, LogFacts>;
const LogFacts& facts_of(const Logs& logs, LogId id);

// Records, bytes and digest of all whole runs.
void add_runs(const std::vector<FoundRun>& runs, EpochEntry* epoch);

// One epoch in one partition.
struct PartFacts {
  std::optional<uint64_t> committed;  // records, according to its segments; none: unknown
  EpochEntry found;                   // the tally of its whole runs
  bool side_by_side = true;           // whether the runs are adjacent
  bool whole() const { return committed == found.records && side_by_side; }
};
PartFacts look_at_part(const Logs& logs, const JobEntry& job, const EpochEntry& epoch,
                       PartitionNumber partition);

// The lost parts of committed epochs. The index log of a partition tells how many records it had; without
// that, the epoch's tally tells whether all partitions together have everything.
struct Losses {
  std::vector<LostPart> parts;  // keeps the reasons that the manifest gave already
  // Epoch id and partition of parts that miss whole runs; the other parts miss large values.
  std::set<std::pair<uint64_t, PartitionNumber>> data;

  bool in_data(const EpochEntry& epoch, PartitionNumber partition) const {
    return data.contains({epoch.epoch_id, partition});
  }
};
Losses find_losses(const std::string& directory, const Manifest& manifest, const Logs& logs);

}  // namespace swale::imd
