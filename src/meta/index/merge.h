// Merging of tables into one: sorted streams of blocks, newest first, decoded where their key ranges overlap
// and copied where they do not (metakv, III-A: "2-way merge ... only with the overlapping blocks"; here any
// number of ways at once).
//
// Works through the keys in chunks of about 64 K rows, so that memory is bounded and rows stay in the cache:
// the rows of a chunk are merged pairwise in memory.
// Threads: one. Inputs are only read.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "meta/index/log.h"
#include "meta/index/removed_files.h"
#include "meta/index/tree.h"

namespace swale::meta {

struct MergeCounters {
  uint64_t blocks_decoded = 0, blocks_copied = 0, entries = 0;
  uint64_t dropped = 0;  // rows of removed files
};

// Sequences of entries are raised as far as nothing that must stay newer is passed: to the next barrier less
// one, or to sequence_max. Then most blocks have one sequence, which takes no bits. Barriers (sequences of
// runs and relocations) ascend.
void raise_sequences(std::span<Entry> entries, std::span<const Sequence> barriers, Sequence sequence_max);

using BlockSink = std::function<Status(const Key& first, Bytes block, size_t rows)>;

// Cuts sorted entries into blocks.
class BlockCutter {
 public:
  static Result<std::unique_ptr<BlockCutter>> create(BlockCodec codec, const FileTable& files,
                                                     BlockSink sink);
  // Keeps up to a block's worth of rows for the next call, unless `all`.
  Status add(std::span<const Entry> entries, bool all);
  bool empty() const { return kept_.empty(); }

 private:
  BlockCutter(std::unique_ptr<BlockEncoder> encoder, const FileTable& files, BlockSink sink)
      : encoder_(std::move(encoder)), files_(files), sink_(std::move(sink)) {}

  std::unique_ptr<BlockEncoder> encoder_;
  const FileTable& files_;
  BlockSink sink_;
  std::vector<Entry> kept_;
  std::string block_;
};

struct MergeRequest {
  std::vector<std::shared_ptr<const Table>> tables;  // newest first
  std::vector<Sequence> barriers;
  BlockCodec codec = BlockCodec::kAuto;
  bool drop_holes = false;                 // nothing older exists
  std::vector<SequencedRelocation> rules;  // places are rewritten by them
  std::vector<RemovedRange> removed;       // rows of these files are left out
};

Status merge_tables(const MergeRequest& request, const BlockSink& sink, MergeCounters* counters);

}  // namespace swale::meta
