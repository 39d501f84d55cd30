// Lookup: one batch of ranges, answered by a shard's runs and layers of extents. Most ranges are answered by
// one run or one row: those paths come first, and only ranges that several things overlap are gathered and
// resolved by sequence.
//
// Threads: the shard's. Errors: kCorruption of a block; std::bad_alloc. Limits: lives for one call; the shard
// must not change.
#pragma once

#include <span>
#include <vector>

#include "meta/index/catalog.h"
#include "meta/index/layers.h"

namespace swale::meta {

// One batch of ranges.
class Lookup {
 public:
  Lookup(const ShardOptions& options, const Catalog& catalog, ShardLayers* layers)
      : options_(options), catalog_(catalog), layers_(layers->list()), cache_frames_(layers->cache_frames()) {
    for (const auto& layer : layers_) {
      if (layer.table != nullptr) cursors_.emplace_back(*layer.table);
    }
  }

  Status run(std::span<const Range> ranges, size_t pieces_max, Found* out);
  // Appends the extents of [begin, end) of a file, in order, until `pieces_max` are in *out. Returns where it
  // stopped.
  Result<uint64_t> gather(const FileId& file, uint64_t begin, uint64_t end, size_t first, size_t pieces_max,
                          std::vector<Extent>* out, size_t rows_max = kGatherRows);
  // The first byte of [begin, end) that is no hole; `end`: none. `near`: how far to look first.
  Result<uint64_t> next_byte(const FileId& file, uint64_t begin, uint64_t end, uint64_t near);
  // The newest extent that has bytes of the query's blocks; 0: none. ~0 if there are many to look at.
  Result<Sequence> newest_extent(const FileId& file, const Run& query);

 private:
  static constexpr size_t kGatherRows = 64 * 1024;  // of a layer, resolved at once
  // kOpen: no layer has had a byte of it yet. Its answer's sequence is that of a run that covers it, or 0.
  enum class State : uint8_t { kOpen, kAnswered, kNothing, kGather };
  struct Answer {
    Extent extent;
    Sequence sequence = 0;
  };

  void answer_from_runs(std::span<const Range> ranges);
  void sort_order(std::span<const Range> ranges);
  Status answer_from_layers(std::span<const Range> ranges);
  Status answer_from_table(std::span<const Range> ranges, TableCursor* cursor);
  void answer_from_rows(std::span<const Range> ranges, const LayerRef& layer);
  Status read_clusters(std::span<const Range> ranges, const Table& table);
  // What one row means for a range: it answers it, or has nothing of it, or a part.
  State judge(const Range& range, const Entry& row, Answer* answer) const;
  // The same for range i, which a run may answer already: a row that is older than the run does not matter to
  // it.
  State judge_at(size_t i, const Range& range, const Entry& row);

  Status rows_between(const FileId& file, uint64_t begin, uint64_t end, size_t rows_max,
                      const LayerRef& layer, TableCursor* cursor, std::vector<Entry>* rows,
                      uint64_t* stop) const;
  void runs_between(uint32_t file, uint64_t begin, uint64_t end, size_t rows_max, std::vector<Entry>* rows,
                    uint64_t* stop);

  const ShardOptions& options_;
  const Catalog& catalog_;
  const std::vector<LayerRef> layers_;
  const size_t cache_frames_;
  std::vector<TableCursor> cursors_;  // one for each table among the layers
  std::vector<State> states_;
  std::vector<Answer> answers_;
  std::vector<uint32_t> order_;  // open ranges by file and offset
  std::vector<SortKey> keys_;
  std::vector<StoredRun> runs_;
  std::vector<Entry> rows_;
};

}  // namespace swale::meta
