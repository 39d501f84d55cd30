// KeySample: n distinct keys of one epoch, all equally likely; reads one slice and about one block for each.
// docs/design/reader.md, "A sample of the keys", has the reasons and the exact promise.
//
// Threads: one at a time. Memory: the keys; in a scan also those of one partition.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader.h"
#include "imd/read/reader_freed.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "run/block.h"
#include "run/segment_reader.h"

namespace swale::imd {

class KeySample {
 public:
  // All must outlive it.
  KeySample(const ReaderFiles& files, const Manifest& manifest, const EpochEntry& epoch,
            PartitionCache& partitions, const FreedEpochs& freed, uint64_t seed);

  // Returns min(n, distinct keys of the epoch) keys.
  Result<std::vector<std::string>> draw(size_t n);

  bool scanned() const { return scanned_; }

 private:
  static constexpr uint32_t kNoPartition = ~uint32_t{0};

  // Some slices of one segment, as read.
  struct OpenSlices {
    const run::SegmentRecord* record;
    uint32_t seed;
    std::map<uint32_t, std::pair<std::vector<char>, run::Slice>> slices;
  };

  uint64_t next_window();
  Result<bool> can_throw(const PartitionLogs& logs);
  Status visit(uint64_t window, double keys_per_record);
  Result<const run::Slice*> slice_of(const PartitionLogs& logs, OpenSlices* segment, Hash rest);
  Status read_candidates(const PartitionLogs& logs, std::vector<OpenSlices>* segments, Hash thrown,
                         uint32_t cell_bits);
  Status keep_if_hit(const PartitionLogs& logs, const run::Candidate& candidate, Hash thrown,
                     uint32_t cell_bits);
  Status read(io::File& file, uint64_t offset, MutableBytes out);
  Status scan(size_t n);

  const EpochEntry& epoch_;
  const uint32_t ranks_;
  const uint32_t ways_;
  PartitionCache& partitions_;
  const FreedEpochs& freed_;
  const ReaderFiles& files_;
  Rng rng_;
  const bool anywhere_;       // records of one key may be in several partitions: keys are scanned for
  uint32_t window_bits_ = 0;  // of the rest
  uint64_t windows_ = 0;
  uint64_t visited_ = 0;  // in this round
  uint64_t bytes_read_ = 0;
  bool scanned_ = false;
  std::unordered_map<uint64_t, uint64_t> order_;  // of the windows: the moves of the shuffle so far
  std::vector<std::string> keys_;
  std::unordered_set<std::string> found_;  // by throws
  std::vector<char> blocks_;               // verified
  uint32_t blocks_of_ = kNoPartition;      // the partition of blocks_
  BlockNumber first_block_;                // the number of their first one
  run::BlockWalk walk_;
};

}  // namespace swale::imd
