// The work that a shard hands out (shard.h, Work): commits of groups, flushes of write buffers, checkpoints.
//
// Order of writes. A commit: record, sync of the log (for its first record also of the directory); then the
// fence; then the group is durable. A checkpoint: sorted files, snapshot and the header of the first log that
// counts after it, each synced; the directory; the fence; the manifest, replaced atomically; the fence again;
// only then are the files that it no longer names removed. The second look at the fence is for a job that was
// stopped and wakes: the job that has taken over may have read the manifest before, which names these files.
//
// Threads: run() by any thread; it touches nothing that the shard changes. All else by the shard's.
// Errors: status(). A commit that found no space takes its record back (taken_back()), so that the log is as
// it was. A checkpoint that fails before the manifest removes what it has written.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meta/index/merge.h"
#include "meta/index/shard_core.h"

namespace swale::meta {

class CommitWork final : public Work {
 public:
  CommitWork(const store::JobClaim& claim, std::shared_ptr<LogFile> log, uint64_t group, std::string record,
             store::AppendSync sync)
      : Work(WorkKind::kCommit),
        claim_(claim),
        log_(std::move(log)),
        group_(group),
        sync_(sync),
        record_(std::move(record)),
        bytes_(record_.size()) {}

  void run() noexcept override {
    status_ = log_->append(
        group_, &record_, [this] { return claim_.fence(); }, sync_);
  }
  bool synced() const { return sync_ == store::AppendSync::kNow; }
  uint64_t group() const { return group_; }
  const Status& status() const { return status_; }
  // The failed record is gone from the log: another one may be written.
  bool taken_back() const { return log_->usable(); }
  uint64_t bytes() const { return bytes_; }  // of the record; the log's header is not among them

 private:
  const store::JobClaim& claim_;
  const std::shared_ptr<LogFile> log_;
  const uint64_t group_;
  const store::AppendSync sync_;
  std::string record_;
  const uint64_t bytes_;
  Status status_;
};

class FlushWork final : public Work {
 public:
  FlushWork(std::shared_ptr<const Memtable> from, std::vector<Sequence> barriers, BlockCodec codec,
            std::vector<RemovedRange> removed)
      : Work(WorkKind::kFlush),
        from_(std::move(from)),
        barriers_(std::move(barriers)),
        codec_(codec),
        removed_(std::move(removed)) {}

  void run() noexcept override;
  const Status& status() const { return status_; }
  const std::shared_ptr<Table>& table() const { return table_; }
  uint64_t dropped() const { return dropped_; }  // rows of removed files

 private:
  Status encode();

  const std::shared_ptr<const Memtable> from_;
  const std::vector<Sequence> barriers_;
  const BlockCodec codec_;
  const std::vector<RemovedRange> removed_;
  uint64_t dropped_ = 0;
  std::shared_ptr<Table> table_;
  Status status_;
};

class CheckpointWork final : public Work {
 public:
  CheckpointWork(const ShardShared* shared, ShardLayers* layers)
      : Work(WorkKind::kCheckpoint), shared_(*shared), layers_(*layers) {}

  void run() noexcept override;
  const Status& status() const { return status_; }

  // Set by the shard before run().
  MergeRequest request;                            // no tables: nothing to merge
  std::vector<std::shared_ptr<const Table>> kept;  // older tables that stay, newest first
  std::shared_ptr<LogFile> log;                    // the first one that the manifest names
  std::string snapshot;
  std::string attributes;  // a new file of the table beside the index; empty: the one that there is stays
  size_t tail_bytes = 0;   // of the table's records that it has
  ShardManifest manifest;
  std::vector<std::string> obsolete;  // paths
  uint64_t freed_log_bytes = 0;
  size_t trees = 0;                      // how many of the shard's trees are in it
  size_t retired = 0;                    // how many of the oldest relocations nothing needs after it
  uint64_t removals = 0, dead_rows = 0;  // of the shard when it began; dead_rows only if all is merged

  // Read by the shard after it.
  std::shared_ptr<Table> merged;
  MergeCounters counters;
  uint64_t merged_bytes = 0;
  uint32_t next_file = 0;

 private:
  Status write();
  Status write_whole(ShardFileKind kind, uint32_t number, Bytes content);
  Status merge();
  Status write_file(SortedFileWriter* writer);
  void list_tables();

  const ShardShared& shared_;         // its counters are not touched
  ShardLayers& layers_;               // opens the files that are written; nothing of it changes
  std::vector<std::string> written_;  // paths, until the manifest may name them
  Status status_;
};

}  // namespace swale::meta
