// PairStore: the home's share of an epoch while it grows: batches as they came, inside a memory budget.
//
// A batch is verified, counted by bucket of hash space, and copied into a chunk of memory: 2.95 bytes a key.
// When the budget is used up, all batches in memory become one *spill run*: sorted pairs in blocks of a
// temporary file, 3.3 bytes a pair at 4,096 ranks, read once more when the table is made. Then the pairs are
// handed out by ranges of hash space: all batches and spill runs are read side by side, so that no more than
// one range is decoded at a time.
//
// Threads: one thread. The spill file is the caller's, used by nothing else; its content is scratch.
// Invariants: (1) buckets_ counts the pairs of all batches and spill runs, doubles included.
//   (2) memory_bytes() <= memory_limit, but for a range that one hot bucket makes larger (see each_shard).
// Errors: kCorruption (scope peer) for a batch that is not whole; kResourceExhausted if there is no spill
// file, or if so
//   many pairs have nearly the same hash that one range does not fit. After a failure, and after
//   std::bad_alloc, the store is as before the call.
// Limits: memory_limit of at least kMemoryMin; 2^32 - 1 pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"
#include "source/batch.h"
#include "source/spill_run.h"

namespace swale::source {

class PairStore {
 public:
  static constexpr uint64_t kMemoryMin = 2 * kMiB;

  struct Params {
    EpochNumber epoch = {};
    uint32_t sources = 1;
    uint64_t memory_limit = 32 * kMiB;
    io::File* spill_file = nullptr;  // may be null
  };
  // kInvalidArgument if a field is out of range.
  static Result<PairStore> create(const Params& params);

  // From here on; where there was no file before.
  void spill_to(io::File* file) { params_.spill_file = file; }

  // `batch` is one whole batch (encode_batch).
  Status add(Bytes batch);
  // The same for up to kMixedBatchKeysMax pairs that came without one. Sorts them; `scratch` has as many
  // words.
  Status add_pairs(std::span<Pair> pairs, std::span<Pair> scratch);

  uint64_t pairs() const { return pairs_; }  // doubles included
  uint64_t spilled_bytes() const;
  uint64_t memory_bytes() const;  // now, with what each_shard and a table's builder will need

  using TakeShard = std::function<Status(uint32_t shard, std::span<const Pair> pairs)>;
  // Calls take(shard, pairs) for each of the 2^shard_bits shards, in order; the pairs are sorted, doubles
  // removed. May be called again. Stops at the first failure and returns it.
  Status each_shard(uint32_t shard_bits, const TakeShard& take);

 private:
  static constexpr uint32_t kBucketBits = 12;
  // of a ShardBuilder with a shard of 16,384 keys, and its output
  static constexpr uint64_t kBuilderBytes = kMiB;

  struct Chunk {
    std::unique_ptr<char[]> bytes;
    size_t used = 0;
    size_t size = 0;
  };
  struct Range;  // what decoding a range needs

  explicit PairStore(const Params& params);

  Status add_verified(const BatchHeader& header, Bytes batch);
  Status make_room(size_t batch_bytes);
  Status add_chunk();
  Status count(const BatchHeader& header, const char* batch);
  Status spill();
  uint64_t range_pairs() const;  // that are decoded at a time
  Status check_hot_bucket() const;
  void open_batches(std::vector<BatchCursor>* cursors) const;

  Params params_;
  size_t chunk_bytes_;
  std::vector<Chunk> chunks_;
  uint64_t batches_ = 0;      // in chunks_
  uint64_t batches_max_ = 0;  // for whose cursors there is memory beside the chunks
  uint64_t pairs_ = 0;
  uint64_t pairs_in_memory_ = 0;
  std::vector<uint32_t> buckets_;            // pairs by the top kBucketBits of their hashes
  std::vector<uint32_t> buckets_in_memory_;  // of those in chunks_
  std::vector<SpillRun> runs_;
  uint64_t spill_end_ = 0;
  std::string mixed_;  // the batch of add_pairs
};

}  // namespace swale::source
