// Query: looks up keys in many segments at once, in waves of reads: slices, their overflows, blocks.
//
//   add(key, epochs) ─► lookups, one per segment that may hold the key ─► sorted by place ─► slices (each read once)
//   ─► candidates, sorted by place ─► blocks (each read once, neighbours together) ─► records with the key
//
// Adding keys in the order of their hashes makes lookups that share a slice meet: a hash's order is also the order of
// partitions, ways and slices, whatever the number of ranks.
// Threads: one at a time. The keys must outlive finish().
// Memory: kLookupsMax lookups, two chunks of kChunkBytes, and 56 bytes per candidate of the slices of one chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/manifest.h"
#include "imd/reader.h"
#include "imd/reader_io.h"
#include "imd/reader_partition.h"
#include "run/segment_reader.h"

namespace swale::imd {

// Epochs first..last-1.
struct EpochRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

class Query {
 public:
  struct Hit {
    size_t key_index = 0;
    uint32_t epoch = 0;
    uint64_t sequence = 0;  // of two hits of one key and epoch, the one appended first has the smaller
    Bytes value;            // valid during the call
  };
  using HitFn = std::function<bool(const Hit&)>;  // false stops the query

  Query(const Manifest& manifest, PartitionCache& partitions, ReadCounters& counters,
        const ReaderOptions& options, HitFn fn);

  Status add(size_t key_index, Bytes key, Hash hash, EpochRange epochs);
  Status finish();
  bool stopped() const { return stopped_; }

 private:
  static constexpr size_t kLookupsMax = 128 * 1024;
  static constexpr size_t kPartitionsMax = 64;  // whose files are held open at once
  static constexpr size_t kChunkBytes = 4 * kMiB;

  struct Lookup {
    const PartitionLogs* logs;
    const run::SegmentRecord* segment;
    run::SliceLocation slice;
    Hash rest;
    Bytes key;
    size_t key_index;
  };
  struct Pending {
    const Lookup* lookup;
    uint64_t sequence;
    run::Candidate candidate;
  };
  // Lookups of one slice.
  struct SliceGroup {
    std::span<const Lookup> lookups;
    char* bytes;
    std::optional<run::Slice> slice;
  };
  // Neighbouring blocks of one epoch, and the candidates in them.
  struct BlockGroup {
    std::span<const Pending> pending;
    uint64_t first_block;
    uint64_t end_block;
    const char* bytes;
  };

  Status flush();
  Status look_into_slices(std::span<const Lookup> lookups);
  std::vector<SliceGroup> group_by_slice(std::span<const Lookup> lookups) const;
  Status attach_overflows(std::vector<SliceGroup>& groups);
  Status read_candidates();
  Status read_groups(std::vector<BlockGroup>& groups);
  Status match(const BlockGroup& group);

  const Manifest& manifest_;
  PartitionCache& partitions_;
  ReadCounters& counters_;
  const HitFn fn_;
  ReadWave wave_;
  std::map<uint32_t, std::shared_ptr<const PartitionLogs>> held_;  // of lookups_
  std::vector<Lookup> lookups_;
  std::vector<Pending> pending_;
  std::vector<char> scratch_;
  uint64_t sequence_ = 0;
  uint32_t footer_depth_ = 0;
  uint32_t chunk_depth_ = 0;  // waves of the current chunk
  uint32_t depth_max_ = 0;    // of any chunk
  bool stopped_ = false;
};

}  // namespace swale::imd
