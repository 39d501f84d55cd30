// TopQuery: the records of one epoch with the greatest or the least numbers in a field, best first.
//
//   summary of the epoch ─► partitions ─► heads of their groups ─► lists of blocks ─► blocks ─► records
//
// Each item on this way has a bound that none of its records exceeds. The query opens the items with the best
// bounds next, in waves of independent reads, until the k-th best record is at least as good as the best
// remaining bound. A partition without extrema of the epoch, or a field that is not indexed, is scanned, and
// so is an epoch that only a cluster has.
// Threads: one at a time. Errors: kCorruption that names file and offset; a summary that is missing or
// damaged only
//   costs reads. Memory: k records, and 24 bytes for each block that a list has named.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "imd/format/extrema_summary.h"
#include "imd/format/manifest.h"
#include "imd/read/reader.h"
#include "imd/read/reader_freed.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"
#include "io/device.h"
#include "run/extrema_reader.h"
#include "run/run_cursor.h"

namespace swale::imd {

class TopQuery {
 public:
  // All must outlive it.
  TopQuery(const ReaderFiles& files, const Manifest& manifest, const EpochEntry& epoch,
           PartitionCache& partitions, const FreedEpochs& freed);
  ~TopQuery();  // adds what it read to the counters of `files`
  TopQuery(const TopQuery&) = delete;
  TopQuery& operator=(const TopQuery&) = delete;

  // kInvalidArgument for a field that is not in the schema, or a k beyond the limits.
  Result<TopResult> run(std::string_view field, size_t k, run::Extreme which);

 private:
  // Among equal bounds, the item nearer to the records comes first.
  enum class Level : uint8_t { kBlock, kPiece, kPartition, kUnlisted };
  struct Source {
    run::OrderKey score;  // no record in the item has a better one
    Level level;
    uint32_t owner;   // kPartition: its number; kPiece, kBlock: index in groups_
    uint32_t number;  // of the piece, of the block in its group
    bool operator<(const Source& other) const;
  };
  struct Group {
    PartitionNumber partition = {};
    run::GroupHead head;
  };
  struct Found {
    run::OrderKey score;
    PartitionNumber partition = {};
    uint64_t sequence;  // orders the records of one key by append
    std::string key;
    std::string value;  // of one that lies elsewhere what the record has
    bool large;
  };
  struct OpenBlock {
    Source source;
    std::shared_ptr<const PartitionLogs> logs;
    const run::GroupRun* run;
    BlockNumber block = {};
    std::vector<char> bytes;
  };

  static bool better(const Found& a, const Found& b);
  bool full() const { return found_.size() == k_; }
  bool enough(run::OrderKey score) const { return full() && found_.front().score >= score; }
  // `fields`: the value's front, with the field if the value has it.
  void offer(PartitionNumber partition, uint64_t sequence, Bytes fields, const run::RecordView& record,
             bool large);

  Result<std::shared_ptr<const PartitionLogs>> logs_of(PartitionNumber partition);
  void read(io::File& file, uint64_t offset, MutableBytes out);
  Status begin();
  Status search();
  std::vector<Source> next_wave();
  Result<ExtremaSummary> read_summary();
  Status open_partition(PartitionNumber partition, run::OrderKey score);
  Status scan_partition(PartitionNumber partition);
  Status read_front(const run::ScannedRecord& record, std::string* front);
  Status open_pieces(const std::vector<Source>& wave);
  Status open_blocks(const std::vector<Source>& wave);
  Status look_into(std::vector<OpenBlock>& blocks);
  Result<TopResult> take_result();

  ReadCounters& all_counters_;
  ReadCounters counters_;    // of this query only
  ReadStats footers_;        // the part of counters_ that the cache has counted already
  const ReaderFiles files_;  // with counters_
  const Manifest& manifest_;
  PartitionCache& partitions_;
  const FreedEpochs& freed_;
  ValueReader large_;
  const EpochEntry& epoch_;
  const uint32_t partition_count_;
  run::FieldPlace field_;
  std::optional<size_t> indexed_;  // its number among the indexed fields
  run::Extreme which_ = run::Extreme::kLargest;
  size_t k_ = 0;
  std::optional<ReadQueue> reads_;
  std::optional<ExtremaSummary> summary_;
  std::priority_queue<Source> sources_;
  std::vector<Group> groups_;
  std::vector<Found> found_;  // a heap, the worst at its front
  run::FieldTotals totals_;   // of the partitions that were opened
  TopResult result_;
};

}  // namespace swale::imd
