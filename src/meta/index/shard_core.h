// ShardCore: the Shard of shard.h. This header is for the shard's own sources.
//
//   put ─► Groups ─► log record ─► (durable) ─► ShardLayers: Memtable ─► Tree ─► ... ─► sorted files
//                                        └────► Catalog: files, RunLayers ───────────► snapshot, manifest
//
// It joins parts that have a state each. A part knows only those before it and never calls back: it returns
// what another part must learn. shard_core.cc: requests. shard_rim.cc: works are handed out and taken back.
// shard_work.cc: what they do. shard_recovery.cc: opening. answers.cc: questions.
// Threads: as Shard says. What a Work shares with the shard is immutable or belongs to the Work until
// finish().
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "meta/index/answers.h"
#include "meta/index/catalog.h"
#include "meta/index/dues.h"
#include "meta/index/groups.h"
#include "meta/index/layers.h"
#include "meta/index/shard.h"
#include "meta/index/shard_logs.h"
#include "meta/index/shard_shared.h"
#include "meta/index/table_records.h"

namespace swale::meta {

class CheckpointWork;
class CommitWork;
class FlushWork;

class ShardCore final : public Shard {
 public:
  ShardCore(io::Device& device, const ShardOptions& options)
      : shared_(device, options), records_(options.table, options.table_bytes_min) {}
  Status recover(RecoveryReport* report);  // once, before anything else

  Result<uint64_t> put(RequestKey key, std::span<const Put> puts) override;
  Result<uint64_t> truncate(RequestKey key, const FileId& file, uint64_t size, uint64_t generation) override;
  Result<uint64_t> remove(RequestKey key, const FileId& file, uint64_t generation) override;
  Result<uint64_t> relocate(RequestKey key, const Relocation& relocation) override;

  uint64_t add_record(Bytes record) override;
  bool accepts_records() const override;
  uint64_t record_memory_bytes() const override { return records_.memory_bytes(); }

  uint32_t job() const override { return shared_.job(); }
  Status fence() const override { return shared_.fence(); }
  uint64_t open_group() const override { return groups_.open(); }
  uint64_t durable_group() const override { return groups_.durable(); }
  uint64_t synced_group() const override { return synced_group_; }
  bool accepts() const override { return !layers_.full(); }
  Status health() const override { return health_; }

  using Shard::next_commit;
  std::unique_ptr<Work> next_commit(store::AppendSync sync) override;
  std::unique_ptr<Work> next_background() override;
  bool background_first() const override { return records_.overdue() || logs_.overdue(); }
  bool settle() override;
  Status finish(std::unique_ptr<Work> work) override;
  Status commit() override;
  Status drain() override;
  Status tidy() override;

  Status lookup(std::span<const Range> ranges, size_t pieces_max, Found* out) override {
    return unreadable_.ok() ? answers_.lookup(ranges, pieces_max, out) : unreadable_;
  }
  Status lookup_runs(const FileId& file, std::span<const Run> queries, size_t runs_max, std::vector<Run>* out,
                     std::vector<size_t>* ends) override {
    return unreadable_.ok() ? answers_.lookup_runs(file, queries, runs_max, out, ends) : unreadable_;
  }
  Status scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
              std::vector<Extent>* out, uint64_t* next) override {
    return unreadable_.ok() ? answers_.scan(file, from, pieces_max, ownership, out, next) : unreadable_;
  }
  Status run_table(const FileId& file, size_t runs_max, const Ownership* ownership,
                   std::vector<Run>* out) override {
    return unreadable_.ok() ? answers_.run_table(file, runs_max, ownership, out) : unreadable_;
  }
  FileSize size(const FileId& file) const override { return catalog_.size(file); }
  void list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const override {
    catalog_.list_files(after, files_max, out);
  }

  const ShardCounters& counters() const override { return shared_.counters; }
  ShardState state() const override;
  void drop_cache() override { layers_.drop_cache(); }
  bool consistent() const override;

 private:
  // Whether the request is to be done; false: it is a duplicate.
  Result<bool> admit(const RequestKey& key);
  void apply(const Group& group);
  void want_space_back();
  void fail(const Status& why);
  void take_back_records() noexcept;

  bool freeze();
  Status merge(bool all);
  Status finish_commit(CommitWork* work);
  Status finish_flush(FlushWork* work);
  Status finish_checkpoint(CheckpointWork* work);
  Status background_failed(const Status& why);
  std::unique_ptr<Work> start_flush();
  std::unique_ptr<Work> start_checkpoint(bool all);
  std::unique_ptr<Work> due_work();
  uint64_t checkpoint_bytes() const;

  Result<ShardManifest> read_manifest(uint32_t newest_job);
  Status read_files(const ShardManifest& manifest, SnapshotVisitor* replay, Sequence* sequence);
  Status sync_last_log();
  void remove_unnamed(const ShardManifest& manifest);

  Status health_;
  Status unreadable_;  // a durable group could not be applied: memory has no whole state any more

  // In this order: a part knows those before it.
  ShardShared shared_;
  Catalog catalog_{shared_.options};
  ShardLayers layers_{&shared_};
  Groups groups_{&shared_, &catalog_, &layers_};
  uint64_t synced_group_ = 0;
  ShardLogs logs_{&shared_};
  TableRecords records_;
  Dues dues_;
  Answers answers_{&shared_, &catalog_, &layers_};
};

}  // namespace swale::meta
