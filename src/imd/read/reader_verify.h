// Verifier: reads every byte that the manifest promises and checks everything that can be checked.
//
// Partition by partition and epoch by epoch: all slices of the segments are opened and kept, then the runs are walked,
// and every record must be named by exactly one candidate of the index, at its own place. Counts, bytes and digests
// are summed over all partitions and compared with swale.json.
// Threads: one at a time. Memory: the index of one epoch in one partition, about 1.4 bytes a record, and one chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "imd/format/manifest.h"
#include "imd/read/extrema_verify.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"
#include "imd/read/values_verify.h"
#include "io/device.h"
#include "run/run_cursor.h"
#include "run/segment_reader.h"

namespace swale::imd {

class Verifier {
 public:
  Verifier(io::Device& device, std::string directory, const Manifest& manifest, const ReaderOptions& options,
           ReadCounters& counters)
      : device_(device),
        directory_(std::move(directory)),
        manifest_(manifest),
        options_(options),
        counters_(counters),
        extrema_(manifest, options_, counters),
        values_(device, directory_, counters),
        large_(manifest, values_),
        sums_(manifest.epochs.size()) {}

  Reader::VerifyReport run(size_t problems_max, const Reader::ProgressFn& progress);

 private:
  struct Sums {
    uint64_t records = 0;
    uint64_t data_bytes = 0;
    uint64_t digest = 0;
    uint64_t problems = 0;
  };
  struct OpenSegment {
    const run::SegmentRecord* record;
    std::vector<char> bytes;
    std::vector<run::Slice> slices;
  };

  uint32_t partition_count() const;
  bool full() const { return report_.problems.size() >= problems_max_; }
  void problem(const Status& status, uint32_t epoch);
  void advance(uint64_t bytes);
  // The bytes that verification will read.
  uint64_t measure();

  void check_logs(LogId id);
  void check_epoch(const PartitionLogs& logs, const EpochEntry& epoch);
  Status open_segment(const PartitionLogs& logs, OpenSegment* segment);
  Status open_slice(const PartitionLogs& logs, uint32_t number, OpenSegment* segment);
  void walk_blocks(const PartitionLogs& logs, const EpochEntry& epoch);
  void walk_chunk(const PartitionLogs& logs, const EpochEntry& epoch, uint64_t first_block, Bytes blocks);
  Status check_record(const PartitionLogs& logs, const JobEntry& job, const run::ScannedRecord& record);
  void compare_sums();
  void tell_losses();
  void check_values();

  io::Device& device_;
  const std::string directory_;
  const Manifest& manifest_;
  const ReaderOptions options_;
  ReadCounters& counters_;
  ExtremaVerifier extrema_;
  ValueReader values_;
  ValuesVerifier large_;
  std::vector<Sums> sums_;  // by epoch
  size_t problems_max_ = 0;
  Reader::ProgressFn progress_;
  Reader::VerifyReport report_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  // Of the epoch and partition being checked:
  std::vector<OpenSegment> segments_;
  bool segments_whole_ = false;
  std::optional<run::RunCursor> cursor_;  // none: looking for the next run behind damage
};

}  // namespace swale::imd
