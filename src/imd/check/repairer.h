// Repairer: one repair of a directory (repair.h says what it does). repair.cc examines the directory and
// publishes the results; repair_rebuild.cc rebuilds index logs; repair_epoch.cc recovers epochs that were
// open.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "imd/check/repair.h"
#include "imd/check/repair_facts.h"
#include "imd/check/repair_manifest.h"
#include "imd/check/repair_tables.h"
#include "imd/format/epoch_log.h"
#include "imd/format/extrema_summary.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_values.h"
#include "imd/write/writer_lock.h"

namespace swale::imd {

class IndexWriter;

class Repairer {
 public:
  Repairer(io::Device& device, std::string directory, const RepairOptions& options)
      : device_(&device),
        directory_(std::move(directory)),
        dry_run_(options.dry_run),
        progress_(options.progress),
        environment_(options.environment) {}

  Result<RepairReport> run();

 private:
  // An index log to rebuild.
  struct Rebuild {
    LogId id;
    std::set<EpochNumber> whole;  // epochs whose segments are kept
    std::string temporary;
    std::string tables_temporary;                        // none: no table is made anew
    std::map<EpochNumber, run::ValueRange> tables = {};  // that are, by epoch
  };
  // An epoch that its job never ended.
  struct OpenEpoch {
    EpochEntry epoch;
    std::vector<std::vector<FoundRun>> runs;  // by partition
    std::vector<run::ValueRange> tables;      // in the lossy format, by home
  };

  ReaderFiles files() { return {*device_, directory_, {}, counters_}; }
  Status begin();
  Status look();
  Status find_logs();
  Status find_logs_beside();
  uint64_t data_bytes() const;
  Status look_at(LogId id, LogFacts* facts);
  void tell_losses();
  bool anything_to_do() const;
  Status publish();
  Status commit();
  Status keep_damaged_manifest();

  Status mend_attributes();

  Status plan_rebuilds();
  Status plan_rebuild(LogId id);
  Result<std::set<EpochNumber>> whole_epochs(LogId id);
  Status write_index(Rebuild* rebuild);
  Status write_epoch_segments(const Rebuild& rebuild, const EpochEntry& epoch, BlockNumber* end_block,
                              IndexWriter* writer);
  Status write_table_segment(const Rebuild& rebuild, const EpochEntry& epoch, IndexWriter* writer);
  Status replace_indexes();

  Status plan_tables();
  Status plan_table(const EpochEntry& epoch, PartitionNumber home);
  std::vector<PartitionRuns> runs_of(const EpochEntry& epoch) const;
  Status write_tables(Rebuild* rebuild);
  Status write_open_tables();

  Status plan_open_epochs();
  Result<OpenEpoch> open_epoch(EpochNumber number);
  Result<bool> has_values(const JobEntry& job, const FoundRun& run);
  Status write_open_epochs();
  Status write_open_partition(PartitionNumber partition, std::vector<std::vector<run::FieldTotals>>* totals);
  Status copy_values(PartitionNumber writer);
  Status write_summaries(const std::vector<ExtremaSummary>& summaries);

  io::Device* device_;
  std::unique_ptr<io::Device> anchored_;  // keeps the directory open
  const std::string directory_;
  const bool dry_run_;
  const std::function<void(uint64_t, uint64_t)> progress_;
  const OpenEnvironment environment_;
  ReadCounters counters_;
  std::optional<WriterLock> lock_;
  Logs logs_;
  FoundManifest found_;
  Losses losses_;
  bool attributes_mended_ = false;
  std::vector<Rebuild> rebuilds_;
  std::set<std::pair<LogId, EpochNumber>> bad_tables_;  // by home and epoch: to be made anew
  JobEntry dead_job_;                                   // the job of these open epochs
  std::vector<OpenEpoch> open_;
  uint32_t number_ = 0;      // of this job, once it is claimed
  uint64_t data_bytes_ = 0;  // of all data logs, if progress is wanted
  uint64_t read_bytes_ = 0;  // of them, so far
  RepairReport report_;
};

}  // namespace swale::imd
