// ShardLayers: the extents of a shard, in layers that cover disjoint ranges of sequences, newest first:
//
//   active buffer -> frozen buffer -> trees in memory -> tables of sorted files
//
// Threads: the shard's. A Work reads what is immutable: the frozen buffer, trees, tables.
// Invariants: (1) Only the active buffer changes. What is not visible in it belongs to groups that are not
// durable. (2) While there is a frozen buffer, no other one is frozen. (3) Trees and tables descend by
// sequence.
// Errors: std::bad_alloc: nothing has changed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "meta/index/memtable.h"
#include "meta/index/shard_shared.h"
#include "meta/index/sorted_file.h"
#include "meta/index/tree.h"

namespace swale::meta {

// One layer of irregular extents.
struct LayerRef {
  const std::vector<Entry>* rows = nullptr;  // of a memtable, or
  const FileTable* files = nullptr;
  const Table* table = nullptr;
};

class ShardLayers {
 public:
  explicit ShardLayers(ShardShared* shared)
      : shared_(*shared),
        cache_(shared->options.cache_bytes),
        active_(std::make_shared<Memtable>(shared->options.write_buffer_entries)) {}

  Memtable& active() { return *active_; }
  const Memtable& active() const { return *active_; }
  const std::shared_ptr<Memtable>& frozen() const { return frozen_; }

  // Both buffers are full, or checkpoints do not keep up.
  bool full() const {
    return (frozen_ != nullptr && active_->full()) ||
           tree_bytes() >= 2 * shared_.options.compression_buffer_bytes;
  }
  uint64_t tree_bytes() const;
  uint64_t rows() const;
  uint64_t visible_rows() const { return active_->visible() + (frozen_ != nullptr ? frozen_->visible() : 0); }
  // Of the oldest row that no flush has taken; `otherwise` if there is none.
  Sequence unmerged(Sequence otherwise) const {
    return active_->size() > 0 ? active_->sequence_min() : otherwise;
  }
  // What the next checkpoint writes anew, whatever its size: at four tables the newest one.
  uint64_t rewritten_bytes() const;
  std::vector<LayerRef> list();

  // The buffer after the active one, with what of it is not visible; null: nothing is visible.
  std::shared_ptr<Memtable> successor();
  // `next` takes the place of the active buffer, which has only what is visible from then on.
  void freeze(std::shared_ptr<Memtable> next) noexcept;
  // The frozen buffer has become `tree`. Its memory serves again if `keep_memory`.
  void flushed(const std::shared_ptr<const Table>& tree, bool keep_memory);
  void drop_spare() { std::vector<Entry>().swap(spare_); }  // an assignment of {} would keep its memory

  // What a checkpoint merges: all trees, and as many of the newest tables as are not twice as large as what
  // is merged anyway: tables stay in geometric sizes, so that a lookup meets few and each entry is rewritten
  // a logarithmic number of times.
  struct Merge {
    std::vector<std::shared_ptr<const Table>> tables;  // trees and tables to merge, newest first
    std::vector<std::shared_ptr<const Table>> taken;   // the tables among them
    std::vector<std::shared_ptr<const Table>> kept;    // older tables that stay, newest first
    size_t trees = 0;                                  // how many of the trees are in it
  };
  // `all`: everything. A single table with nothing to change stays as it is, if `keep_single`.
  Merge choose_merge(bool all, bool keep_single) const;
  // The oldest `trees` are in `tables`, which are all that there are.
  void merged(size_t trees, std::vector<std::shared_ptr<const Table>> tables) noexcept;

  // The tables of the manifest.
  Status open(const ShardManifest& manifest);
  Result<std::shared_ptr<SortedFile>> open_file(const std::string& path, uint64_t owner) {
    return SortedFile::open(shared_.device, path, owner, &cache_, &shared_.counters);
  }
  size_t cache_frames() const { return cache_.frames(); }
  void drop_cache() { cache_.clear(); }

  void describe(ShardState* state) const;
  bool consistent() const;  // the invariants

 private:
  ShardShared& shared_;
  BlockCache cache_;  // outlives the files of the tables
  std::shared_ptr<Memtable> active_, frozen_;
  std::vector<Entry> spare_;  // the memory of the buffer that was flushed last
  std::vector<std::shared_ptr<const Table>> trees_, tables_;  // newest first
};

}  // namespace swale::meta
