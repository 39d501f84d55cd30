// Query: looks up keys in many segments at once.
//
//   run(keys, epochs) ─► visits: segments with keys ─► groups: rests that share a slice ─► slices ─►
//   candidates, by place ─► blocks ─► records
//
// Keys come in the order of their hashes, which is also the order of partitions, ways and slices for any
// number of ranks. So the rests of one slice are adjacent, each slice is verified once, and each block of a
// run is visited once and in order. Mapped bytes are examined in place, with prefetches ahead; all others are
// read through one ReadQueue. If there are few slices, the blocks of each are requested as soon as it has
// arrived; if there are many, blocks are sorted first, and neighbours are read together.
//
// With a ReadCache, slices are looked up there first, and kept there when they were read and verified; so are
// blocks, if the keys are few (kKeysCachedMax): those of a batch are read by neighbours, and few come again.
// Mapped bytes are not kept: others could change them after the check.
//
// A Query keeps its memory for the next run; after a few queries of a size it allocates nothing. A run that
// did not end regularly (an error, an exception from inside or from the sink, a sink that stops) leaves reads
// and half of a plan: such a Query is not reusable() and must not run again. Its destructor waits for the
// reads.
// Threads: one at a time. The keys must outlive run.
// Memory: kRestsMax rests, kVisitsMax visits (and those of one partition and epoch), two arenas of
// kChunkBytes, and 96 bytes per candidate of the slices of one chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/format/partitioner.h"
#include "imd/format/series.h"
#include "imd/read/arena.h"
#include "imd/read/read_cache.h"
#include "imd/read/reader.h"
#include "imd/read/reader_clusters.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_tables.h"
#include "run/block.h"
#include "run/segment_reader.h"

namespace swale::imd {

// Epochs first..last-1.
struct EpochRange {
  EpochNumber first = {};
  EpochNumber last = {};
};

struct QueryKey {
  Hash hash = 0;
  size_t index = 0;  // the caller's
  Bytes key;
};

// What a Query puts slices and blocks into.
struct QueryMemory {
  Arena slices;
  Arena blocks;

  // Enough for a usual call: at its first use each page would cost about 1 us, between two reads that wait
  // for one another.
  static QueryMemory backed();
};

class Query {
 public:
  struct Hit {
    size_t key_index = 0;
    EpochNumber epoch = {};
    // Orders the hits of one key by epoch, then by append; hits with equal sequences come in
    // order.
    uint64_t sequence = 0;
    Bytes value;         // valid during the call; of one that lies elsewhere what stands in its place
    bool large = false;  // it lies elsewhere
    // What `value` is, if a cluster answers (kPoints: large is set).
    SeriesKind kind = SeriesKind::kWhole;
  };
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual bool hit(const Hit& hit) = 0;  // false stops the query
  };

  Query(const ReaderFiles& files, const Manifest& manifest, PartitionCache& partitions, TableCache& tables,
        const Partitioners& partitioners, QueryMemory memory = {});

  // Requires `keys` in the order of their hashes. For epochs that `clusters` cover, these answer.
  Status run(std::span<const QueryKey> keys, EpochRange epochs, Sink& sink,
             const ClusterSet* clusters = nullptr);
  bool reusable() const { return reusable_; }

  void trim();  // to kKeptBytes or so

 private:
  static constexpr size_t kRestsMax = 32 * kKiB;
  static constexpr size_t kVisitsMax = 32 * kKiB;
  static constexpr size_t kPartitionsMax = 64;  // partitions whose files are kept open at once
  static constexpr size_t kChunkBytes = 4 * kMiB;
  static constexpr size_t kKeptBytes = kMiB;
  static constexpr size_t kEagerGroupsMax = 64;
  static constexpr size_t kSlicesAhead = 2;       // prefetched
  static constexpr size_t kCandidatesAhead = 16;  // whose blocks are prefetched
  static constexpr uint32_t kNoPin = UINT32_MAX;
  static constexpr size_t kKeysCachedMax = 64;

  // A segment in which to search for keys first_key..end_key-1.
  struct Visit {
    size_t first_key;
    size_t end_key;
    uint32_t held;                               // index in held_
    uint32_t segment;                            // index in the segments of its logs
    uint32_t ranks;                              // of its job
    const ClusterSet::Member* member = nullptr;  // whose logs these are; nullptr: the directory's own
    size_t keys() const { return end_key - first_key; }
  };
  // The rests first_rest..+rest_count of one slice.
  struct SliceGroup {
    const PartitionLogs* logs;
    uint32_t held;     // index in held_
    uint32_t segment;  // index in logs->segments
    const ClusterSet::Member* member;
    uint32_t first_rest;
    uint32_t rest_count;
    run::SliceLocation location;
    const char* bytes;
    bool asked = false;          // its bytes were requested and come by a read
    uint32_t depth = 1;          // of the reads that brought the slice
    ReadCache::Pin cached = {};  // has the whole slice, verified

    const run::SegmentRecord& record() const { return logs->segments[segment]; }
  };
  struct Pending {
    run::Candidate candidate;
    uint32_t group;
    uint32_t rest;
    uint32_t number;        // in its group
    uint32_t pin = kNoPin;  // index in pins_ of its blocks, if they are cached
    const char* bytes;      // of its blocks, if they are mapped or cached
  };
  // Neighbouring blocks of one epoch, to be read, and the candidates in them.
  struct BlockGroup {
    size_t first_pending;
    size_t pending_count;
    BlockNumber first_block = {};
    BlockNumber end_block = {};
    char* bytes;

    size_t size_bytes() const { return (end_block - first_block) * run::kBlockBytes; }
  };
  // A slice that waits for its overflow.
  struct Overflow {
    size_t group;
    run::Slice slice;
    MutableBytes bytes;
  };
  // The verified ones of the blocks that were used last.
  struct Verified {
    const PartitionLogs* logs = nullptr;
    BlockNumber first_block = {};
    BlockNumber end_block = {};
  };
  enum class Stage : uint64_t { kSlice, kOverflow, kBlocks };  // the top byte of a read's tag
  static constexpr int kStageShift = 56;
  static uint64_t tag(Stage stage, size_t index) {
    return static_cast<uint64_t>(stage) << kStageShift | index;
  }

  // From keys to groups.
  size_t keys_at_once(size_t first_key, EpochRange epochs) const;
  Status plan(size_t first_key, size_t end_key, EpochRange epochs);
  Status plan_by_tables(size_t first_key, size_t end_key, EpochNumber epoch);
  Status plan_by_function(size_t first_key, size_t end_key, EpochNumber epoch);
  Status plan_partition(size_t first_key, size_t end_key, PartitionNumber partition, EpochNumber epoch);
  Result<uint32_t> hold(const EpochEntry& epoch, PartitionNumber partition);
  bool is_covered(EpochNumber epoch) const { return clusters_ != nullptr && clusters_->covers(epoch); }
  Status plan_clusters(size_t first_key, size_t end_key);
  Status plan_cluster(const ClusterSet::Member& member, size_t first_key, size_t end_key,
                      PartitionNumber partition);

  // From visits to groups, and to candidates.
  Status flush();
  void add_groups(const Visit& visit);
  Status look_into_groups();
  Status look_into(size_t first_group, size_t end_group);
  void ask_for_slice(size_t group);
  Status examine(size_t group);
  Result<run::Slice> open_slice(const SliceGroup& group);
  Status attach_overflow(const SliceGroup& group, run::Slice* slice, Bytes bytes);
  Status take_candidates(size_t group, const run::Slice& slice);
  Status wait_for_overflow(size_t group, run::Slice slice);
  Status take_reads();
  Status take_read(uint64_t tag);

  // From candidates to hits.
  bool ask_at_once(size_t first_pending);
  Status look_at_rest();
  ReadCache::Name name_of(const SliceGroup& group) const;
  ReadCache::Name name_of(const Pending& pending) const;
  bool take_cached(SliceGroup& group);
  bool take_cached(Pending& pending, const Pending* previous);
  Status examine_cached(size_t group);
  Status match_cached(const Pending& pending);
  void keep(const SliceGroup& group, const run::Slice& slice);
  void keep(const Pending& pending, const char* bytes);
  void resolve(Pending& pending, const Pending* previous) const;
  Status match_resolved();
  void ask_for_blocks(size_t pending);
  void close_block_group();
  Status match_group(const BlockGroup& group);
  Status look_into_blocks(const Pending& pending, const char* bytes, bool mapped);
  Status verify(const Pending& pending, const char* bytes, bool mapped);
  Result<const char*> read_blocks_again(const Pending& pending, const char* bytes, const Status& found);
  Status match(const Pending& pending, const char* bytes);
  Status match_all(const Pending& pending, Bytes blocks);
  Status match_series(const Pending& pending, Bytes series);
  // Their memory is about to hold others.
  void forget_blocks() {
    verified_ = {};
    walk_.forget();
  }
  // The same for cached blocks.
  void forget_pins() {
    if (pins_.empty()) return;
    walk_.forget();
    pins_.clear();
  }
  void raise_depth(const Pending& pending);

  Status run_all(EpochRange epochs);
  void forget_groups();
  bool is_empty() const;
  void settle_counters();

  const Manifest& manifest_;
  const run::ValueRule rule_;
  PartitionCache& partitions_;
  TableCache& tables_;
  const Partitioners& partitioners_;
  ReadCounters& counters_;
  ReadCache* const cache_;  // nullptr: none
  Sink* sink_ = nullptr;
  std::span<const QueryKey> keys_;
  EpochRange epochs_;
  const ClusterSet* clusters_ = nullptr;
  Nanos now_ = 0;

  std::vector<std::shared_ptr<const PartitionLogs>> held_;  // of visits_ and groups_
  std::vector<uint32_t> own_held_;                          // those of them that are the directory's own
  std::vector<Visit> visits_;                               // planned, until flush
  std::vector<SliceGroup> groups_;
  std::vector<Hash> rests_;
  std::vector<uint32_t> rest_keys_;  // index in keys_ of each rest
  std::vector<Pending> pending_;
  std::vector<Pending> deferred_;  // until all slices of the chunk have been examined
  std::vector<Pending> sort_scratch_;
  std::vector<BlockGroup> block_groups_;
  std::vector<Overflow> overflows_;
  std::vector<ReadCache::Pin> pins_;  // of blocks in pending_
  ReadCache::Name last_kept_;
  Arena slice_memory_;
  Arena block_memory_;
  run::BlockWalk walk_;
  Verified verified_;
  size_t resolved_ = 0;         // pending_ before it have been matched or asked for
  bool group_is_open_ = false;  // the last of block_groups_ may grow
  bool eager_ = false;
  bool caches_blocks_ = false;
  bool stopped_ = false;
  uint64_t sequence_ = 0;  // of groups_[0]
  uint32_t footer_depth_ = 0;
  uint32_t table_depth_ = 0;
  uint32_t depth_ = 0;
  uint64_t reads_count_ = 0;
  uint64_t bytes_count_ = 0;
  uint64_t false_count_ = 0;
  uint64_t cache_hits_ = 0;
  uint64_t cache_misses_ = 0;
  bool reusable_ = true;
  ReadQueue reads_;  // destroyed first: it waits for reads into the memory above
};

}  // namespace swale::imd
