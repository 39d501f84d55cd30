// Answers: what a shard answers to questions, from its catalog and its layers. Lookup does the work for
// ranges; queries of regular runs are answered from runs as far as these say all.
//
// Threads: the shard's. Errors: as the calls of Shard; std::bad_alloc is contained.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "meta/index/lookup.h"

namespace swale::meta {

class Answers {
 public:
  Answers(ShardShared* shared, const Catalog* catalog, ShardLayers* layers)
      : shared_(*shared), catalog_(*catalog), layers_(*layers) {}

  Status lookup(std::span<const Range> ranges, size_t pieces_max, Found* out);
  Status lookup_runs(const FileId& file, std::span<const Run> queries, size_t runs_max, std::vector<Run>* out,
                     std::vector<size_t>* ends);
  Status scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
              std::vector<Extent>* out, uint64_t* next);
  Status run_table(const FileId& file, size_t runs_max, const Ownership* ownership, std::vector<Run>* out);

 private:
  Lookup make_lookup() { return Lookup(shared_.options, catalog_, &layers_); }
  Status answer_whole(std::optional<Lookup>* irregular, const FileId& file, const FileState& state,
                      const Run& whole, size_t runs_max, uint64_t* blocks_left, std::vector<Run>* out);
  Result<bool> answer_query(std::optional<Lookup>* irregular, const FileId& file, const FileState& state,
                            const Run& query, std::vector<Run>* out);
  // No extent ends after it: a truncate to more bytes leaves nothing there.
  uint64_t end_of_file(const FileId& file) const { return catalog_.size(file).size; }

  ShardShared& shared_;
  const Catalog& catalog_;
  ShardLayers& layers_;
  std::vector<StoredRun> cut_;
};

}  // namespace swale::meta
