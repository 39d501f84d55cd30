// Catalog: what durable groups say besides extents: files with their sizes and regular runs, rules of
// relocation, removed ids, and which requests are done. A snapshot keeps all of it.
//
// Files have small numbers. A file gets its number when a group that is not durable yet names it, and keeps
// it until it is removed, or renumber() gives all of them new ones.
//
// Threads: the shard's.
// Invariants: (1) Only apply() and recovery change what a lookup sees. (2) A number that is not free has a
// state. (3) Barriers ascend; every run and every relocation has one. (4) Relocations ascend by sequence.
// Errors: std::bad_alloc. After one from apply() there is no whole state in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "meta/index/entries.h"
#include "meta/index/group.h"
#include "meta/index/removed_files.h"
#include "meta/index/run_layers.h"
#include "meta/index/snapshot.h"

namespace swale::meta {

struct FileState {
  bool known = false;
  uint64_t generation = 0;
  uint64_t size = 0;
  Sequence irregular_max = 0;  // the newest extent or hole; 0: the file has runs only
  uint64_t rows = 0;           // extents and holes that were put, whatever became of them
  bool removing = false;       // a group that is not durable removes it
  bool free = false;           // the number is nobody's
  std::unique_ptr<RunLayers> runs;
};

class Catalog {
 public:
  explicit Catalog(const ShardOptions& options) : options_(options) {}

  // The number of a file; a new one if it has none.
  uint32_t number_of(const FileId& file);
  // FileTable::kNone: nothing was put into it.
  uint32_t find(const FileId& file) const {
    const uint32_t number = files_.find(file);
    return number < states_.size() ? number : FileTable::kNone;
  }
  const FileId& id(uint32_t number) const { return files_.id(number); }
  const FileState& state(uint32_t number) const { return states_[number]; }
  size_t numbers() const { return states_.size(); }
  FileSize size(const FileId& file) const;
  void list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const;

  // kNotFound: the file was removed, durably.
  Status check_there(const FileId& file) const { return removed(file) ? was_removed(file) : ok_status(); }
  // The same, or a group that is not durable removes it.
  Status check_alive(const FileId& file) const;
  // kResourceExhausted: these puts have too many files that are new.
  Status check_files(std::span<const Put> puts) const;
  bool done(const RequestKey& key) const {
    const auto client = clients_.find(key.client);
    return client != clients_.end() && client->second.done(key.number);
  }
  // Whether layers have space for a run of the file.
  bool fits(uint32_t number, const Run& run) const;
  const std::vector<SequencedRelocation>& relocations() const { return relocations_; }
  bool removed(const FileId& file) const { return removed_.contains(file); }
  std::vector<RemovedRange> removed_ranges() const { return removed_.list(); }

  void set_removing(uint32_t number, bool removing) { states_[number].removing = removing; }
  struct Applied {
    bool removed = false;    // files: space may be got back
    bool rules_due = false;  // so many rules have come that a checkpoint should retire them
  };
  // The group is durable: it becomes visible whole. Extents and operations are applied in the order of their
  // sequences.
  Applied apply(const Group& group);
  // Most numbers are nobody's: files get new ones, and the memory of the rest is given back. Returns the new
  // numbers by the old ones; empty: not now, or there is no memory for it.
  std::vector<uint32_t> renumber() noexcept;

  // Checkpoints.
  void prune_barriers();
  const std::vector<Sequence>& barriers() const { return barriers_; }
  std::vector<Sequence> barriers_between(Sequence first, Sequence last) const;
  // How many of the oldest relocations a checkpoint that merges all trees and tables may put into effect:
  // those before `unmerged`, until one that moves a run in part.
  size_t rules_to_retire(Sequence unmerged) const;
  void retire(size_t rules);
  // All of it, with the first `retired` rules in effect, as a snapshot that ends with the tail of `group`.
  std::string encode_snapshot(uint32_t shard, uint64_t owner, Sequence sequence, size_t retired,
                              uint64_t group, Bytes tail) const;

  // Space that removed files hold.
  uint64_t dead_rows() const { return dead_rows_; }  // about: in buffers, trees and tables
  uint64_t removals() const { return removals_; }    // since the last checkpoint
  void rows_dropped(uint64_t rows) { dead_rows_ -= std::min(dead_rows_, rows); }
  void removals_kept(uint64_t removals);

  // Recovery, in the order of the snapshot. The snapshot has no count of dead rows: `rows` of all layers.
  Status restore(const SnapshotFile& file);
  void restore(const SequencedRelocation& relocation) { relocations_.push_back(relocation); }
  void restore(const SnapshotClient& client) { clients_[client.client] = client.window; }
  void restore(const RemovedRange& range) { removed_.add(range); }
  void restored(uint64_t rows);

  void describe(ShardState* state) const;
  bool consistent() const;  // the invariants; looks at everything

 private:
  bool apply_operation(const StagedOperation& operation);
  void apply_removal(const StagedOperation& operation);

  const ShardOptions& options_;
  FileTable files_;
  std::vector<FileState> states_;
  RemovedFiles removed_;
  uint64_t dead_rows_ = 0;
  uint64_t removals_ = 0;
  std::unordered_map<uint64_t, ClientWindow> clients_;
  std::vector<SequencedRelocation> relocations_;
  std::vector<Sequence> barriers_;
  size_t runs_ = 0;  // stored ones, about
};

}  // namespace swale::meta
