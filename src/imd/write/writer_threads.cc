// What a Writer does on threads that are not the application's: workers, storage, the progress thread.
#include <optional>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "imd/write/writer.h"

namespace swale::imd {
// A worker's turn: one task.
bool Writer::work(uint32_t way) noexcept {
  const MutexLock core_lock(mutex_);
  bool worked = false;
  const Status status = contain([&]() REQUIRES(mutex_) {
    std::optional<Partition::Task> task = core_->next_task(way);
    if (!task) return;
    worked = true;
    {
      const MutexUnlock unlocked(mutex_);
      task->work();
    }
    core_->finish_task(*task);
    after_change();
  });
  if (!status.ok()) fail_now(status);
  return worked;
}

// The storage thread asks: a commit, or everything that the core has to write.
bool Writer::store(std::vector<io::Operation>* operations) {
  MutexLock core_lock(mutex_);
  if (const std::optional<EpochProtocol::Commit> next = core_->take_commit()) {
    commit(*next);
    return true;
  }
  io_started_.clear();
  for (size_t tag = 0; tag < io_running_.size() && io_started_.size() < io::StorageThread::kBatchMax; ++tag) {
    if (io_running_[tag]) continue;
    io_running_[tag] = core_->next_io();
    if (!io_running_[tag]) break;
    io_started_.push_back(tag);
  }
  core_lock.unlock();
  // Making space in the file for them may take milliseconds.
  for (const size_t tag : io_started_)
    operations->push_back(opened_.files->operation(*io_running_[tag], tag));
  return io_started_.size() == io::StorageThread::kBatchMax;
}

void Writer::stored(const io::Completion& completion) {
  const MutexLock core_lock(mutex_);
  core_->finish_io(*std::exchange(io_running_[completion.tag], std::nullopt), completion.status);
  after_change();
}

void Writer::Storage::failed(const Status& why) noexcept {
  const MutexLock core_lock(writer_.mutex_);
  writer_.fail_now(why);
}

void Writer::commit(const EpochProtocol::Commit& commit) {
  Status status;
  const Attributes attributes = std::exchange(closing_attributes_, {});
  {
    const MutexUnlock unlocked(mutex_);
    status = contain(
        [&] { return committer_->commit(commit, epoch_id(opened_.job_id, commit.epoch), attributes); });
  }
  core_->commit_done(status);
  after_change();
}

// Ends: workers and storage make room without anything from the network.
void Writer::on_frame_taken() {
  if (delivery_ != Ablation::Delivery::kWait || !core_->deliveries_wait()) return;
  const Nanos begin = system_clock().now();
  wait_for("room for what has arrived", [&] { return !core_->deliveries_wait(); });
  delivery_waited_ += system_clock().now() - begin;
}

void Writer::on_failed(const Status& why) {
  appender_.intake().shut();
  if (quiet_) return;
  log_error("{}: rank {}: {} ({}): {}", opened_.directory, job_.rank(), code_name(why.code()),
            scope_name(why.scope()), why.message());
}

void Writer::on_event() {
  for (uint32_t way = 0; way < workers_.size(); ++way) {
    if (core_->has_task(way)) crew_->wake(&workers_[way]);
  }
  if (core_->has_io()) storage_thread_->wake(&storage_);
}

}  // namespace swale::imd
