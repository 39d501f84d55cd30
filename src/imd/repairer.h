// Repairer: one repair of a directory (repair.h says what it does). repair.cc looks at the directory and mends its
// manifest and indexes; repair_epoch.cc recovers the epoch that was open.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "imd/manifest.h"
#include "imd/reader_values.h"
#include "imd/repair.h"
#include "imd/repair_facts.h"
#include "imd/writer_lock.h"

namespace swale::imd {

class Repairer {
 public:
  Repairer(io::Device& device, std::string directory, const RepairOptions& options)
      : device_(device),
        directory_(std::move(directory)),
        dry_run_(options.dry_run),
        progress_(options.progress),
        values_(device, directory_, counters_) {}

  Result<RepairReport> run();

 private:
  Status lock();
  Status look();
  uint64_t data_bytes() const;
  Status look_at(uint32_t partition, PartitionFacts* facts);
  Status read_manifest();
  Status replace_lost_manifest();
  Status keep_damaged_manifest();
  Status check_indexes();
  Status rebuild_index(uint32_t partition);
  Status recover_open_epoch(bool* recovered);
  std::optional<EpochFacts> open_epoch();
  bool by_the_dead_job(const EpochFacts& epoch) const;
  std::optional<JobEntry> job_of(const EpochFacts& epoch) const;
  void count_what_stays_dead();
  Status write_open_epoch(const JobEntry& job, const EpochEntry& epoch);
  Status append_epoch(uint32_t partition, const JobEntry& job, const EpochEntry& epoch,
                      std::vector<run::FieldTotals>* totals);
  Status leave_out_runs_without_values(const EpochFacts& epoch);
  Result<bool> has_values(io::File& data, const FoundRun& run, const EpochFacts& epoch);
  Result<std::vector<FoundRun>> lay_together(io::File& data, uint32_t partition, const EpochEntry& epoch);

  io::Device& device_;
  const std::string directory_;
  const bool dry_run_;
  const std::function<void(uint64_t, uint64_t)> progress_;
  ReadCounters counters_;
  ValueReader values_;
  std::optional<WriterLock> lock_;
  std::optional<uint64_t> dead_job_;  // whose lock was found
  Manifest manifest_;
  bool manifest_lost_ = false;
  Partitions partitions_;
  uint64_t data_bytes_ = 0;  // of all data logs, if progress is wanted
  uint64_t read_bytes_ = 0;  // of them, so far
  RepairReport report_;
};

}  // namespace swale::imd
