// PartitionLogs: the two logs of one partition, open for reading, with the segments of committed epochs; and the
// cache of those that a Reader has met.
//
// Which segments count is said by the manifest alone: a segment whose epoch_id is not the one that swale.json gives
// for its epoch belongs to an epoch that was never committed. A log that lacks a segment of an epoch which swale.json
// promises is kCorruption.
//
// What the footer promises of both logs is mapped, where the reader's options and the file system let it (mapping.h).
//
// Threads: PartitionLogs are immutable; the cache is thread-safe.
// Limits: kOpenMax partitions (two descriptors each) and kSegmentsMax segments stay cached; what is in use lives on.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/manifest.h"
#include "imd/reader_io.h"
#include "io/device.h"
#include "io/mapping.h"
#include "run/format.h"

namespace swale::imd {

struct PartitionLogs {
  struct Seeds {
    uint32_t slices;
    uint32_t blocks;
  };

  uint32_t partition = 0;
  std::shared_ptr<io::File> data;  // shared with later views of the same log
  std::shared_ptr<io::File> index;
  std::vector<run::SegmentRecord> segments;  // of committed epochs, in the order of epochs, then as written
  std::vector<run::SegmentRecord> extrema;   // likewise, of field extrema
  std::vector<run::SegmentRecord> values;  // likewise, of the value log of the rank that wrote this partition
  std::vector<Seeds> seeds;                // of each segment
  std::vector<uint32_t> first_segments;    // of each epoch; one more at the end
  std::unique_ptr<io::Mapping> data_map;   // none: it is read
  std::unique_ptr<io::Mapping> index_map;
  uint64_t index_end = 0;     // end of the footer that was used
  uint32_t footer_depth = 0;  // reads that followed one another to find it

  std::span<const run::SegmentRecord> segments_of(uint32_t epoch) const;
  std::vector<run::SegmentRecord> extrema_of(uint32_t epoch) const;
  // The epoch's blocks in the data log.
  struct BlockRange {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  BlockRange blocks_of(uint32_t epoch) const;
};

// Opens the logs (or takes the files of `before`) and reads the footer. kCorruption, naming the file, for one that is
// missing or incomplete.
Result<std::shared_ptr<const PartitionLogs>> open_partition(io::Device& device, const std::string& directory,
                                                            uint32_t partition, const Manifest& manifest,
                                                            ReaderOptions::Map map, ReadCounters& counters,
                                                            const PartitionLogs* before = nullptr);

class PartitionCache {
 public:
  static constexpr size_t kOpenMax = 128;
  static constexpr size_t kSegmentsMax = size_t{1} << 20;  // 64 MiB

  PartitionCache(io::Device& device, std::string directory, const Manifest& manifest, ReaderOptions::Map map,
                 ReadCounters& counters)
      : device_(device),
        directory_(std::move(directory)),
        manifest_(manifest),
        map_(map),
        counters_(counters) {}

  // `*depth`: raised to the reads that had to follow one another; 0 if the partition was cached.
  Result<std::shared_ptr<const PartitionLogs>> get(uint32_t partition, uint32_t* depth);

  // Takes the partitions of a cache whose manifest has the first `common` epochs of this one's: those that no other epoch
  // touches as they are, of the rest the files. Called before the first get.
  void take_over(PartitionCache& before, size_t common);

 private:
  struct Entry {
    std::shared_ptr<const PartitionLogs> logs;    // none: to be opened with the files of
    std::shared_ptr<const PartitionLogs> before;  // an earlier view
    std::list<uint32_t>::iterator age;
  };

  void evict();  // call with the mutex held

  io::Device& device_;
  const std::string directory_;
  const Manifest& manifest_;
  const ReaderOptions::Map map_;
  ReadCounters& counters_;
  std::mutex mutex_;  // guards what follows
  std::map<uint32_t, Entry> open_;
  std::list<uint32_t> by_age_;  // most recently used first
  size_t segments_ = 0;
};

}  // namespace swale::imd
