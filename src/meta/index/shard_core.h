// ShardCore: the Shard of shard.h. This header is for the shard's own sources and tests.
//
//   put ─► staged group ─► log record ─► (durable) ─► Memtable ─► Tree ─► ... ─► sorted files
//                                     └► RunLayers of the file                 └► snapshot, manifest
//
// shard_core.cc: puts and groups. shard_work.cc: commits, flushes, checkpoints. shard_lookup.cc: answers.
// shard_recovery.cc: opening.
// Threads: as Shard says. What a Work shares with the shard is immutable or belongs to the Work until
// finish().
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "meta/index/cluster.h"
#include "meta/index/log.h"
#include "meta/index/memtable.h"
#include "meta/index/merge.h"
#include "meta/index/relocation.h"
#include "meta/index/removed_files.h"
#include "meta/index/run_layers.h"
#include "meta/index/shard.h"
#include "meta/index/snapshot.h"
#include "meta/index/sorted_file.h"
#include "meta/index/table_records.h"
#include "meta/index/tree.h"
#include "store/job_claim.h"

namespace swale::meta {

class CheckpointWork;
class CommitWork;
class FlushWork;
class Lookup;
class Replay;

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

// What a group does besides appending extents, in order.
struct StagedOperation {
  LogOperation kind = LogOperation::kRun;
  uint32_t file = 0;
  Sequence sequence = 0;
  Run run;                  // kRun
  uint64_t size = 0;        // kTruncate, kRemove
  uint64_t generation = 0;  // the same
  Relocation relocation;    // kRelocate
};
// A file whose extents a group has: how far they reach, and the newest one's sequence.
struct StagedFile {
  uint32_t file = 0;
  uint64_t end = 0;
  Sequence first = 0, last = 0;
  uint64_t rows = 0;
};

struct Group {
  uint64_t number = 0;
  Sequence sequence_end = 0;
  size_t entries_begin = 0, entries_end = 0;  // of the active memtable
  std::vector<RequestKey> requests;
  std::vector<StagedOperation> operations;
  std::vector<StagedFile> files;
  size_t files_begin = 0;  // of `files`: those after the last truncate
  std::string records;     // of the table beside the index, each sized

  bool empty() const {
    return requests.empty() && operations.empty() && records.empty() && entries_begin == entries_end;
  }
};

struct RequestKeyHash {
  size_t operator()(const std::pair<uint64_t, uint64_t>& key) const {
    return key.first * 0x9e3779b97f4a7c15 ^ key.second;
  }
};

// The log that is being written. Shared with the commit and the checkpoint that are under way; of them, the
// one makes the file that comes first.
class LogFile {
 public:
  LogFile(uint32_t number, io::Device& device, std::string path, const store::LogIdentity& identity,
          bool synced)
      : number_(number), log_(device, std::move(path), identity, synced) {}

  uint32_t number() const { return number_; }
  Status create() noexcept {
    const MutexLock lock(mutex_);
    return log_.create();
  }
  Status append(uint64_t group, std::string* record, const store::RecordLog::Fence& fence) noexcept {
    const MutexLock lock(mutex_);
    return log_.append(kGroupRecord, group, record, fence);
  }
  bool usable() const {
    const MutexLock lock(mutex_);
    return log_.usable();
  }

 private:
  const uint32_t number_;
  mutable Mutex mutex_;
  store::RecordLog log_ GUARDED_BY(mutex_);
};

class ShardCore final : public Shard {
 public:
  ShardCore(io::Device& device, const ShardOptions& options);

  Result<uint64_t> put(RequestKey key, std::span<const Put> puts) override;
  Result<uint64_t> truncate(RequestKey key, const FileId& file, uint64_t size, uint64_t generation) override;
  Result<uint64_t> remove(RequestKey key, const FileId& file, uint64_t generation) override;
  Result<uint64_t> relocate(RequestKey key, const Relocation& relocation) override;

  uint64_t add_record(Bytes record) override;
  bool accepts_records() const override {
    constexpr uint64_t kRecordsBytesMax =
        4 * kMiB;  // of a group (meta/server/server_memory.cc counts with it)
    return !records_wait_ && open_.records.size() < std::min(kRecordsBytesMax, options_.group_bytes_max);
  }
  uint64_t record_memory_bytes() const override { return records_.memory_bytes(); }

  uint32_t job() const override { return claim_->number(); }
  Status fence() const override { return claim_->fence(); }
  uint64_t open_group() const override { return open_.number; }
  uint64_t durable_group() const override { return durable_group_; }
  bool accepts() const override;
  Status health() const override { return health_; }

  std::unique_ptr<Work> next_commit() override;
  std::unique_ptr<Work> next_background() override;
  bool background_first() const override;
  bool settle() override;
  Status finish(std::unique_ptr<Work> work) override;
  Status commit() override;
  Status drain() override;
  Status tidy() override;

  Status lookup(std::span<const Range> ranges, size_t pieces_max, Found* out) override;
  Status lookup_runs(const FileId& file, std::span<const Run> queries, size_t runs_max, std::vector<Run>* out,
                     std::vector<size_t>* ends) override;
  FileSize size(const FileId& file) const override;
  Status scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
              std::vector<Extent>* out, uint64_t* next) override;
  Status run_table(const FileId& file, size_t runs_max, const Ownership* ownership,
                   std::vector<Run>* out) override;
  void list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const override;

  const ShardCounters& counters() const override;
  ShardState state() const override;
  void drop_cache() override { cache_.clear(); }

  Status recover(RecoveryReport* report);

 private:
  friend class CommitWork;
  friend class FlushWork;
  friend class CheckpointWork;
  friend class Replay;
  friend class Lookup;

  std::string path_of(ShardFileKind kind, uint32_t number) const {
    return options_.directory + "/" + shard_file_name(options_.shard, job(), kind, number);
  }
  std::string path_of(uint32_t job, ShardFileKind kind, uint32_t number) const {
    return options_.directory + "/" + shard_file_name(options_.shard, job, kind, number);
  }

  // Puts.
  Status check_put(std::span<const Put> puts) const;
  Status ready(const RequestKey& key, bool* duplicate);
  // What a request waits for that has joined none: what it repeats may be in any group that is not durable.
  uint64_t last_group() const;
  void begin_request(const RequestKey& key);
  uint32_t state_of(const FileId& file);
  void stage_extents(uint32_t local, std::span<const Extent> extents, StagedFile* mark);
  void stage_run(uint32_t local, const Run& run, StagedFile* mark);
  void stage_expanded(uint32_t local, const Run& run, StagedFile* mark);
  bool keep_as_run(uint32_t file, const Run& run) const;
  Status check_removed(const FileId& file) const;
  void reserve_marks(size_t count);
  void note_file(const StagedFile& mark);

  // What a request that fails half way takes back.
  struct Staged {
    size_t entries, operations, files, requests;
    Sequence sequence;
  };
  Staged staged() const;
  void take_back(const Staged& before);

  // Groups.
  std::string encode_group(const Group& group);
  void apply(const Group& group);
  void apply_operation(const StagedOperation& operation);
  void apply_removal(const StagedOperation& operation);
  void want_space_back();
  uint64_t rows() const;
  void renumber_files() noexcept;
  void fail(const Status& why);
  void open_next_group();
  void give_up_groups();
  void take_back_records() noexcept;
  void drop_spare() { std::vector<Entry>().swap(spare_); }  // an assignment of {} would keep its memory
  bool freeze();
  bool records_durable() const {
    return open_.records.empty() && (!committing_ || in_flight_.records.empty());
  }
  Status merge(bool all);
  std::shared_ptr<LogFile> next_log() const;
  Status finish_commit(CommitWork* work);
  Status finish_flush(FlushWork* work);
  Status finish_checkpoint(CheckpointWork* work);
  Status background_failed(const Status& why);

  std::unique_ptr<Work> start_flush();
  std::unique_ptr<Work> start_checkpoint(bool all);
  size_t rules_to_retire() const;
  std::string encode_snapshot(uint64_t owner, size_t retired, bool with_tail) const;
  std::vector<Sequence> barriers_between(Sequence first, Sequence last) const;
  void prune_barriers();
  uint64_t earlier_bytes() const;
  uint64_t checkpoint_bytes() const;

  // Layers of irregular extents, newest first.
  struct LayerRef {
    const std::vector<Entry>* rows = nullptr;  // of a memtable, or
    const FileTable* files = nullptr;
    const Table* table = nullptr;
  };
  std::vector<LayerRef> layers();
  Status open_tables(const ShardManifest& manifest);
  void remove_unnamed(const ShardManifest& manifest);
  Status answer_whole(std::optional<Lookup>* irregular, const FileId& file, uint32_t number, const Run& whole,
                      size_t runs_max, uint64_t* blocks_left, std::vector<Run>* out);
  Result<bool> answer_query(std::optional<Lookup>* lookup, const FileId& file, const FileState& state,
                            const Run& query, std::vector<Run>* out);
  uint64_t end_of_file(const FileId& file) const;

  io::Device& device_;
  const ShardOptions options_;
  std::optional<store::JobClaim> claim_;  // from recover() on
  Status health_;
  Status unreadable_;  // a durable group could not be applied: memory has no whole state any more

  FileTable files_;
  std::vector<FileState> states_;
  RemovedFiles removed_;
  uint64_t dead_rows_ = 0;         // about how many rows of removed files are in buffers, trees and tables
  uint64_t removals_ = 0;          // since the last checkpoint
  bool merge_all_wanted_ = false;  // most rows are dead
  std::unordered_map<uint64_t, ClientWindow> clients_;
  std::vector<SequencedRelocation> relocations_;  // by sequence
  std::vector<Sequence> barriers_;                // of runs and relocations, ascending
  size_t runs_ = 0;                               // stored ones, about

  Sequence next_sequence_ = 1;
  Sequence visible_sequence_ = 1;  // all before it is visible
  uint64_t durable_group_ = 0;
  Group open_, in_flight_;
  bool committing_ = false;
  std::unordered_set<std::pair<uint64_t, uint64_t>, RequestKeyHash> staged_requests_;

  BlockCache cache_;  // outlives the files of the tables
  ReadCounters reads_;
  std::shared_ptr<Memtable> active_, frozen_;
  std::vector<Entry> spare_;  // the memory of the buffer that was flushed last
  std::vector<std::shared_ptr<const Table>> trees_, tables_;  // newest first
  bool background_ = false;
  bool freeze_wanted_ = false;
  bool checkpoint_wanted_ = false;
  bool settling_ = false;          // until the next put: buffers that are not used are given back
  Status blocked_;                 // why the last background work failed, if another attempt may succeed
  bool retry_background_ = false;  // one attempt may be made although it is blocked

  std::shared_ptr<LogFile> log_;
  uint64_t frozen_group_ = 0;  // the first group of the current log is the next one
  uint64_t logs_bytes_ = 0;    // of all logs that count
  uint64_t current_log_bytes_ = 0;
  uint64_t snapshot_bytes_ = 0;
  uint32_t snapshot_number_ = 0, snapshot_job_ = 0;
  uint32_t next_file_ = 1;  // for sorted files and snapshots
  uint32_t first_log_ = 1;  // of this job that a manifest names
  std::vector<ManifestLog> earlier_logs_;
  TableRecords records_;
  uint64_t records_group_ = 0;              // the last one that has a record of the table
  bool records_wait_ = false;               // a checkpoint waits until none is in a group that is not durable
  std::vector<ManifestLog> replaced_logs_;  // earlier ones that the next checkpoint makes obsolete

  mutable ShardCounters counters_;
  std::unique_ptr<BlockEncoder> log_encoder_;
  std::vector<StoredRun> cut_;
  std::vector<StagedFile> marks_;  // of the put that is being staged
};

}  // namespace swale::meta
