// ShardLogs: which files the next manifest of a shard names besides tables: the log that is being written,
// those before it that still count, and the snapshot.
//
// Threads: the shard's; a LogFile is shared with Works.
// Invariants: (1) Numbers of this job's logs have no gap, and those from first_log() on count. (2) Logs of
// earlier jobs count until a checkpoint begins after a freeze: its snapshot and trees have what they say.
// Errors: std::bad_alloc: nothing has changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "meta/index/shard_shared.h"
#include "store/record_log.h"

namespace swale::meta {

// The log that is being written. Shared with the commit and the checkpoint that are under way; of them, the
// one makes the file that comes first. What the log `before` it has is durable then: only the last log of a
// shard may be torn.
class LogFile {
 public:
  LogFile(uint32_t number, io::Device& device, std::string path, const store::LogIdentity& identity,
          bool synced, std::shared_ptr<LogFile> before)
      : number_(number), before_(std::move(before)), log_(device, std::move(path), identity, synced) {}

  uint32_t number() const { return number_; }
  // Whatever it has is durable then.
  Status create() noexcept {
    const MutexLock lock(mutex_);
    SWALE_RETURN_IF_ERROR(settle_before());
    return log_.create();
  }
  Status append(uint64_t group, std::string* record, const store::RecordLog::Fence& fence,
                store::AppendSync sync) noexcept {
    const MutexLock lock(mutex_);
    SWALE_RETURN_IF_ERROR(settle_before());
    return log_.append(kGroupRecord, group, record, fence, sync);
  }
  bool usable() const {
    const MutexLock lock(mutex_);
    return log_.usable();
  }

 private:
  Status settle_before() noexcept REQUIRES(mutex_) {
    if (before_ == nullptr) return {};
    SWALE_RETURN_IF_ERROR(before_->create());
    before_.reset();
    return {};
  }

  const uint32_t number_;
  mutable Mutex mutex_;
  std::shared_ptr<LogFile> before_ GUARDED_BY(mutex_);  // until what it has is durable
  store::RecordLog log_ GUARDED_BY(mutex_);
};

class ShardLogs {
 public:
  explicit ShardLogs(const ShardShared* shared) : shared_(*shared) {}

  const std::shared_ptr<LogFile>& current() const { return log_; }
  // The log after the current one; the current one if it is not in use yet, so that numbers have no gaps.
  std::shared_ptr<LogFile> next() const;
  // Groups after `group` go to `log`, and the next checkpoint has what logs of earlier jobs say.
  void go_on_in(std::shared_ptr<LogFile> log, uint64_t group);
  void wrote(uint64_t bytes, bool synced) {
    bytes_ += bytes, current_bytes_ += bytes;
    if (synced) durable_bytes_ = current_bytes_;
  }

  uint64_t bytes() const { return bytes_; }  // of all logs that count
  bool too_long() const { return bytes_ > shared_.options.log_bytes_max; }
  bool overdue() const { return bytes_ > shared_.options.log_bytes_max + shared_.options.log_bytes_max / 2; }
  bool has_earlier() const { return !earlier_.empty(); }
  uint64_t snapshot_bytes() const { return snapshot_bytes_; }

  // Checkpoints. The parts of a manifest that names what counts now, with a new snapshot; the paths that it
  // makes obsolete; how many bytes of logs it frees.
  void fill(ShardManifest* manifest);
  void list_obsolete(std::vector<std::string>* paths) const;
  uint64_t freed_bytes() const;
  uint32_t take_number() { return next_file_++; }  // of a file
  uint32_t next_number() const { return next_file_; }
  void numbers_taken_until(uint32_t next) { next_file_ = std::max(next_file_, next); }
  void checkpointed(const ShardManifest& manifest, uint64_t snapshot_bytes, uint64_t freed_bytes);

  // Recovery.
  void restore(const ManifestFile& snapshot, uint64_t bytes);
  void restore(const ManifestLog& log);
  Status start(uint64_t group);  // makes the first log of this job
  const std::vector<ManifestLog>& earlier() const { return earlier_; }

  bool consistent() const;  // the invariants

 private:
  const ShardShared& shared_;
  std::shared_ptr<LogFile> log_;
  uint64_t frozen_group_ = 0;  // the first group of the current log is the next one
  uint64_t bytes_ = 0, current_bytes_ = 0;
  uint64_t durable_bytes_ = 0;  // of the current log's, as far as known
  uint64_t snapshot_bytes_ = 0;
  ManifestFile snapshot_;   // number 0: none
  uint32_t next_file_ = 1;  // for sorted files and snapshots
  uint32_t first_log_ = 1;  // of this job that a manifest names
  std::vector<ManifestLog> earlier_;
  std::vector<ManifestLog> replaced_;  // earlier ones that the next checkpoint makes obsolete
};

}  // namespace swale::meta
