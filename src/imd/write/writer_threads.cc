// The threads of a ThreadedWriter that are not the application's: workers, storage, the progress thread's events.
#include <optional>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "imd/write/threaded_writer.h"

namespace swale::imd {
void ThreadedWriter::work(uint32_t way) {
  Lock core_lock(mutex_);
  while (!stopping_) {
    const Status status = contain([&] { work_once(core_lock, way); });
    if (!status.ok()) fail_now(core_lock, status);
  }
}

void ThreadedWriter::work_once(Lock& core_lock, uint32_t way) {
  std::optional<Partition::Task> task = core_->next_task(way);
  if (!task) return workers_.wait(core_lock);
  core_lock.unlock();
  task->work();
  core_lock.lock();
  core_->finish_task(*task);
  after_change(core_lock);
}

// Ends when nothing is in flight: storage may write from the core's memory until then.
void ThreadedWriter::store() {
  Lock core_lock(mutex_);
  while (!stopping_ || io_queue_->in_flight() != 0) {
    const Status status = contain([&] { store_once(core_lock); });
    if (!status.ok()) fail_now(core_lock, status);
  }
}

void ThreadedWriter::store_once(Lock& core_lock) {
  if (const std::optional<EpochProtocol::Commit> next = core_->take_commit()) {
    commit(core_lock, *next);
  } else if (!start_io(core_lock)) {
    io_queue_->in_flight() != 0 ? reap_io(core_lock) : storage_.wait(core_lock);
  }
}

void ThreadedWriter::commit(Lock& core_lock, const EpochProtocol::Commit& commit) {
  core_lock.unlock();
  const Status status =
      contain([&] { return committer_->commit(commit, epoch_id(opened_.job_id, commit.epoch)); });
  core_lock.lock();
  core_->commit_done(status);
  after_change(core_lock);
}

// Gives storage everything that the core has for it. False: nothing.
bool ThreadedWriter::start_io(Lock& core_lock) {
  std::vector<size_t> tags;
  for (size_t tag = 0; tag < io_running_.size(); ++tag) {
    if (io_running_[tag]) continue;
    io_running_[tag] = core_->next_io();
    if (!io_running_[tag]) break;
    tags.push_back(tag);
  }
  if (tags.empty()) return false;
  core_lock.unlock();
  std::vector<io::Operation> operations;  // making room ahead of them may take milliseconds
  for (const size_t tag : tags) operations.push_back(opened_.files->operation(*io_running_[tag], tag));
  io_queue_->submit(operations);
  core_lock.lock();
  return true;
}

void ThreadedWriter::reap_io(Lock& core_lock) {
  storage_in_queue_ = true;
  core_lock.unlock();
  completions_.clear();
  const Status waited = contain([&] { io_queue_->wait(1, &completions_); });
  core_lock.lock();
  storage_in_queue_ = false;
  if (!waited.ok()) fail_now(core_lock, waited);
  for (const io::Completion& completion : completions_) {
    core_->finish_io(*std::exchange(io_running_[completion.tag], std::nullopt), completion.status);
  }
  after_change(core_lock);
}

// Ends: workers and storage make room without anything from the network.
void ThreadedWriter::on_frame_taken(Lock& core_lock) {
  if (delivery_ != Ablation::Delivery::kWait || !core_->deliveries_wait()) return;
  const Nanos begin = system_clock().now();
  wait_for(core_lock, "room for what has arrived", [&] { return !core_->deliveries_wait(); });
  delivery_waited_ += system_clock().now() - begin;
}

void ThreadedWriter::on_failed(const Status& why) {
  appender_.intake().shut();
  if (quiet_) return;
  log_error("{}: rank {}: {} ({}): {}", opened_.directory, job_.rank(), code_name(why.code()),
            scope_name(why.scope()), why.message());
}

void ThreadedWriter::on_event() {
  if (core_->has_task()) workers_.notify_all();
  if (core_->has_io()) storage_in_queue_ ? io_queue_->wake() : storage_.notify_one();
}

}  // namespace swale::imd
