// What the logs of all jobs say about epochs, and whether what was committed is still there.
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

// What one log has of one epoch, committed or not.
struct LogEpoch {
  uint32_t epoch = 0;
  std::vector<FoundRun> runs;                // whole ones, by place
  std::vector<run::SegmentRecord> segments;  // that the footer names, of all kinds
  run::ValueRange values;                    // found in the value log

  // The segments of records, if every way of the job has one and they agree; else none.
  std::vector<run::SegmentRecord> agreed_segments(const JobEntry& job, uint32_t number) const;
  // What the footer says of the value log.
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

// What one epoch has in one partition.
struct PartFacts {
  std::optional<uint64_t> committed;  // records, as its segments say; none: they do not say
  EpochEntry found;                   // the tally of its whole runs
  bool side_by_side = true;           // they are
  bool whole() const { return committed == found.records && side_by_side; }
};
PartFacts look_at_part(const Logs& logs, const JobEntry& job, const EpochEntry& epoch, uint32_t partition);

// What of the committed epochs is no longer there. The index log of a partition says how many records it had; where it
// does not, the epoch's tally tells whether all partitions together have everything.
struct Losses {
  std::vector<LostPart> parts;  // what the manifest knew already stays as it was said
  // Epoch id and partition: whole runs are missing. Of the other parts it is large values.
  std::set<std::pair<uint64_t, uint32_t>> data;

  bool in_data(const EpochEntry& epoch, uint32_t partition) const {
    return data.contains({epoch.epoch_id, partition});
  }
};
Losses find_losses(const std::string& directory, const Manifest& manifest, const Logs& logs);

}  // namespace swale::imd
