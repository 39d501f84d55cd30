// PartitionLogs: the two logs of one partition of one job, open for reading, with the segments of committed epochs; and the
// cache of those that a Reader has met.
//
// Which segments count is said by the manifest alone: a segment whose epoch_id is not the one that swale.json gives
// for its epoch belongs to an epoch that was never committed. A log that lacks a segment of an epoch which swale.json
// promises is kCorruption, unless the manifest says that repair has given this part up: then only questions about that
// epoch are.
//
// What the footer promises of both logs is mapped, where the reader's options and the file system let it (mapping.h).
//
// Threads: PartitionLogs are immutable; the cache is thread-safe.
// Limits: kOpenMax logs (two descriptors each) and kSegmentsMax segments stay cached; what is in use lives on.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"
#include "io/device.h"
#include "io/mapping.h"
#include "run/format.h"

namespace swale::imd {

struct PartitionLogs {
  struct Seeds {
    uint32_t slices;
    uint32_t blocks;
  };

  LogId id;
  uint32_t partition = 0;          // id.partition
  std::shared_ptr<io::File> data;  // shared with later views of the same log
  std::shared_ptr<io::File> index;
  std::vector<run::SegmentRecord> segments;  // of committed epochs, in the order of epochs, then as written
  std::vector<run::SegmentRecord> extrema;   // likewise, of field extrema
  std::vector<run::SegmentRecord> values;  // likewise, of the value log of the rank that wrote this partition
  std::vector<run::SegmentRecord> tables;  // likewise, of auxiliary tables
  std::vector<Seeds> seeds;                // of each segment
  std::vector<uint32_t> first_segments;    // of each epoch; one more at the end
  std::vector<uint32_t> lost;  // epochs that the index log does not have, and repair has recorded as lost
  std::unique_ptr<io::Mapping> data_map;  // none: it is read
  std::unique_ptr<io::Mapping> index_map;
  uint64_t index_end = 0;     // end of the footer that was used
  uint32_t footer_depth = 0;  // reads that followed one another to find it
  uint64_t footer_reads = 0;
  uint64_t footer_bytes = 0;

  std::span<const run::SegmentRecord> segments_of(uint32_t epoch) const;
  std::vector<run::SegmentRecord> extrema_of(uint32_t epoch) const;
  uint64_t records_of(uint32_t epoch) const;
  // The epoch's blocks in the data log.
  struct BlockRange {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  BlockRange blocks_of(uint32_t epoch) const;
};

// Opens the logs (or takes the files of `before`) and reads the footer. kCorruption, naming the file, for one that is
// missing or incomplete.
Result<std::shared_ptr<const PartitionLogs>> open_partition(const ReaderFiles& files, LogId id,
                                                            const Manifest& manifest,
                                                            const PartitionLogs* before = nullptr);

class PartitionCache {
 public:
  static constexpr size_t kOpenMax = 128;
  static constexpr size_t kSegmentsMax = size_t{1} << 20;  // 64 MiB

  // Both must outlive the cache.
  PartitionCache(const ReaderFiles& files, const Manifest& manifest) : files_(files), manifest_(manifest) {}

  // The logs of the epoch's partition, if they have all of it. `*depth`: raised to the reads that had to follow one
  // another; 0 if they were cached.
  Result<std::shared_ptr<const PartitionLogs>> get(const EpochEntry& epoch, uint32_t partition,
                                                   uint32_t* depth);
  Result<std::shared_ptr<const PartitionLogs>> get(LogId id, uint32_t* depth);

  // kCorruption, saying what was lost, if the log cannot tell all that it had of the epoch. Damage within what it tells is
  // met where it is.
  Status check(const PartitionLogs& logs, const EpochEntry& epoch) const;

  // Takes the logs of a cache whose manifest has the first `common` epochs of this one's: those whose jobs have no other
  // epochs as they are, of the rest the files. Called before the first get.
  void take_over(PartitionCache& before, size_t common);

 private:
  struct Entry {
    std::shared_ptr<const PartitionLogs> logs;    // none: to be opened with the files of
    std::shared_ptr<const PartitionLogs> before;  // an earlier view
    std::list<LogId>::iterator age;
  };

  void evict() REQUIRES(mutex_);

  const ReaderFiles& files_;
  const Manifest& manifest_;
  Mutex mutex_;
  std::map<LogId, Entry> open_ GUARDED_BY(mutex_);
  std::list<LogId> by_age_ GUARDED_BY(mutex_);  // most recently used first
  size_t segments_ GUARDED_BY(mutex_) = 0;
};

}  // namespace swale::imd
