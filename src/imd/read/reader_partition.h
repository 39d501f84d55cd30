// PartitionLogs: the two logs of one partition of one job, open for reading, with the segments of committed
// epochs; and a Reader's cache of them.
//
// Only the manifest decides which segments count: if a segment's epoch_id differs from the one that
// swale.json has for its epoch, the segment's epoch was never committed. A log that lacks a segment of a
// committed epoch is kCorruption. If the manifest says that repair has recorded this part as lost, only
// queries for that epoch are kCorruption.
//
// The parts of both logs that the footer promises are mapped if the reader's options and the file system
// allow it (mapping.h).
//
// Threads: PartitionLogs are immutable; the cache is thread-safe.
// Limits: kOpenMax logs (two descriptors each) and kSegmentsMax segments stay cached; logs in use stay open
// beyond that.
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
#include "imd/read/read_cache.h"
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
  std::shared_ptr<io::File> data;  // shared with later views of the same log
  std::shared_ptr<io::File> index;
  std::vector<run::SegmentRecord> segments;  // of committed epochs, in the order of epochs, then as written
  std::vector<run::SegmentRecord> extrema;   // likewise, of field extrema
  std::vector<run::SegmentRecord> values;  // likewise, of the value log of the rank that wrote this partition
  std::vector<run::SegmentRecord> tables;  // likewise, of auxiliary tables
  std::vector<Seeds> seeds;                // of each segment
  std::vector<uint32_t> first_segments;    // of each epoch; one more at the end
  std::vector<EpochNumber> lost;  // epochs that the index log lacks and that repair has recorded as lost
  std::unique_ptr<io::Mapping> data_map;  // none: it is read
  std::unique_ptr<io::Mapping> index_map;
  uint64_t index_end = 0;        // end of the footer that was used
  uint32_t footer_depth = 0;     // successive reads that were needed to find it
  uint32_t cache_directory = 0;  // ReadCache::number_of the directory
  uint64_t footer_reads = 0;
  uint64_t footer_bytes = 0;

  std::span<const run::SegmentRecord> segments_of(EpochNumber epoch) const;
  std::vector<run::SegmentRecord> extrema_of(EpochNumber epoch) const;
  uint64_t records_of(EpochNumber epoch) const;
  // The epoch's blocks in the data log.
  struct BlockRange {
    BlockNumber first = {};
    uint64_t count = 0;
  };
  BlockRange blocks_of(EpochNumber epoch) const;
  // Of a slice at offset 0 of the segment's file.
  ReadCache::Name cache_name(const run::SegmentRecord& segment) const {
    return {.epoch_id = segment.epoch_id,
            .offset = 0,
            .directory = cache_directory,
            .job = id.job,
            .partition = id.partition,
            .blocks = 0};
  }
};

// Opens the logs (or takes the files of `before`) and reads the footer. kCorruption, which names the file, if
// one is missing or incomplete.
Result<std::shared_ptr<const PartitionLogs>> open_partition(const ReaderFiles& files, LogId id,
                                                            const Manifest& manifest,
                                                            const PartitionLogs* before = nullptr);

// Of an epoch that no log holds any more: no cluster has it; `why`, if that is known.
Status freed_error(const std::string& directory, const EpochEntry& epoch, const Status& why);

class PartitionCache {
 public:
  static constexpr size_t kOpenMax = 128;
  static constexpr size_t kSegmentsMax = size_t{1} << 20;  // 64 MiB

  // Both must outlive the cache.
  PartitionCache(const ReaderFiles& files, const Manifest& manifest) : files_(files), manifest_(manifest) {}

  // The logs of the epoch's partition, if they have all of it; none has an epoch that is freed. Raises
  // `*depth` to the number of successive reads; 0 if the logs were cached.
  Result<std::shared_ptr<const PartitionLogs>> get(const EpochEntry& epoch, PartitionNumber partition,
                                                   uint32_t* depth);
  Result<std::shared_ptr<const PartitionLogs>> get(LogId id, uint32_t* depth);

  // kCorruption, with a description of the loss, if the log lacks a part of the epoch. Damage inside the
  // parts that it has is found when they are read.
  Status check(const PartitionLogs& logs, const EpochEntry& epoch) const;

  // Takes over from a cache whose manifest has the first `common` epochs of this one's: the logs of jobs that
  // have no other epochs, and the files of the others. Call before the first get.
  void take_over(PartitionCache& before, size_t common);

 private:
  struct Entry {
    std::shared_ptr<const PartitionLogs> logs;    // null: open them with the files of `before`
    std::shared_ptr<const PartitionLogs> before;  // of an earlier view
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
