#include "tier/engine/syncs.h"

namespace swale::tier {

std::vector<OpIndex> SyncLane::take_waiters() {
  std::vector<OpIndex> ops;
  for (const auto& [number, op] : std::exchange(waiters_, {})) ops.push_back(op);
  return ops;
}

std::vector<OpIndex> SyncLane::take_waiters(FileIndex file) {
  std::vector<OpIndex> ops;
  for (const auto& waiter : std::exchange(waiters_, {})) {
    if (shared_.ops[waiter.second].file == file)
      ops.push_back(waiter.second);
    else
      waiters_.push_back(waiter);
  }
  return ops;
}

void Syncs::start() {
  if (log.may_start()) {
    log.start();
    shared_.outbox.emit({.kind = Action::Kind::kSyncLog});
  }
  if (backing.may_start() && !backing_waits()) {
    backing.start();
    shared_.outbox.emit({.kind = Action::Kind::kSyncBacking});
  }
}

uint64_t Syncs::want_log_sync(const FileState& file) {
  if (shared_.options.canaries.sync_without_log) return 0;
  if (records_.usable() && file.log_sync > log.started()) log.want(shared_.now);
  return file.log_sync;
}

uint64_t Syncs::want_file_sync(FileIndex index) {
  FileState& file = shared_.files[index];
  const uint64_t number = file.syncs_started + 1;
  file.sync_wanted = true;
  start_file_sync(index);
  return number;
}

void Syncs::start_file_sync(FileIndex index) {
  FileState& file = shared_.files[index];
  if (!file.sync_wanted || file.syncs_started > file.syncs_done || backing_waits()) return;
  file.sync_wanted = false;
  ++file.syncs_started;
  ++of_files_;
  shared_.outbox.emit({.kind = Action::Kind::kSyncFile, .id = index, .file = index});
}

void Syncs::end_file_sync(FileIndex index) {
  FileState& file = shared_.files[index];
  assert(of_files_ > 0 && file.syncs_started == file.syncs_done + 1);
  file.syncs_done = file.syncs_started;
  --of_files_;
}

}  // namespace swale::tier
