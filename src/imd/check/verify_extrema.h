// ExtremaVerifier: the part of verification for field extrema, which must be those of the records.
//
//   begin(partition, epoch) ─► record … ─► finish(partition) … ─► check_summaries
//
// A bound that excludes a record, a block that a list does not name, counts that differ: each is a problem.
// Threads: one at a time. Memory: for one partition and epoch, 16 bytes per block and field, and its lists.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "imd/format/extrema_summary.h"
#include "imd/format/manifest.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "io/device.h"
#include "run/extrema_reader.h"
#include "run/run_cursor.h"

namespace swale::imd {

class ExtremaVerifier {
 public:
  using ProblemFn = std::function<void(const Status&)>;

  // Both must outlive it.
  ExtremaVerifier(const Manifest& manifest, const ReaderFiles& files)
      : manifest_(manifest), files_(files), epochs_(manifest.epochs.size()) {}

  // Reads the extrema of one epoch in one partition; returns the bytes read.
  uint64_t begin(const PartitionLogs& logs, const EpochEntry& epoch, const ProblemFn& problem);
  void record(const run::ScannedRecord& record);
  // `whole`: every record was added; otherwise it compares nothing.
  void finish(const PartitionLogs& logs, const EpochEntry& epoch, bool whole, const ProblemFn& problem);

  // Call after all partitions.
  void check_summaries(const ProblemFn& problem);

 private:
  struct EpochState {
    ExtremaSummary summary;
    uint32_t partitions = 0;  // those that were whole and had extrema
  };

  Result<run::GroupContent> read_group(const PartitionLogs& logs, const run::SegmentRecord& segment,
                                       uint64_t* bytes);
  Status compare_totals(const PartitionLogs& logs, const EpochEntry& epoch) const;
  Status compare_group(const PartitionLogs& logs, const run::GroupContent& group) const;
  Status compare_list(const PartitionLogs& logs, const run::GroupContent& group, size_t list) const;
  Status compare_runs(const PartitionLogs& logs, const run::GroupContent& group) const;
  const run::Extrema& actual(size_t field, BlockNumber block) const {
    return actual_[field][block - first_block_];
  }

  const Manifest& manifest_;
  const ReaderFiles& files_;
  std::vector<EpochState> epochs_;
  // State of the partition and epoch being checked:
  bool active_ = false;
  std::vector<run::GroupContent> groups_;
  BlockNumber first_block_;
  std::vector<std::vector<run::Extrema>> actual_;  // by field and block
  std::vector<run::FieldTotals> totals_;
};

}  // namespace swale::imd
