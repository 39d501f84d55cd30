// The threads of a ThreadedWriter that are not the application's: workers, storage, the progress thread's events.
#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "imd/write/threaded_writer.h"

namespace swale::imd {
namespace {

constexpr Nanos kTick = seconds(1);
constexpr Nanos kRetry = milliseconds(50);  // of what memory did not suffice for

}  // namespace

void ThreadedWriter::work(uint32_t way) {
  Lock core_lock(core_mutex_);
  while (!stopping_) {
    const Status status = contain([&] { work_once(core_lock, way); });
    if (!status.ok()) fail(core_lock, status);
  }
}

void ThreadedWriter::work_once(Lock& core_lock, uint32_t way) {
  std::optional<Partition::Task> task;
  if (!at_rest()) task = core_->next_task(way);
  if (!task) return workers_.wait(core_lock);
  core_lock.unlock();
  task->work();
  core_lock.lock();
  core_->finish_task(*task);
  announce();
  send_ready(core_lock);
}

// Ends when nothing is in flight: storage may write from the core's memory until then.
void ThreadedWriter::store() {
  Lock core_lock(core_mutex_);
  while (!stopping_ || io_queue_->in_flight() != 0) {
    const Status status = contain([&] { store_once(core_lock); });
    if (!status.ok()) fail(core_lock, status);
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
  announce();
  send_ready(core_lock);
}

// Gives storage everything that the core has for it. False: nothing.
bool ThreadedWriter::start_io(Lock& core_lock) {
  std::vector<size_t> tags;
  for (size_t tag = 0; tag < io_running_.size() && !at_rest(); ++tag) {
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
  if (!waited.ok()) fail(core_lock, waited);
  for (const io::Completion& completion : completions_) {
    core_->finish_io(*std::exchange(io_running_[completion.tag], std::nullopt), completion.status);
  }
  announce();
  send_ready(core_lock);
}

void ThreadedWriter::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  Lock core_lock(core_mutex_);
  if (!core_) return;
  const Status status = contain([&] {
    core_->on_frame(from, header, payload);
    announce();
    if (delivery_ == Ablation::Delivery::kWait && core_->deliveries_wait()) wait_for_delivery(core_lock);
  });
  if (!status.ok()) fail_locked(status);
}

// Ends: workers and storage make room without anything from the network.
void ThreadedWriter::wait_for_delivery(Lock& core_lock) {
  const Nanos begin = system_clock().now();
  wait_for(core_lock, "room for what has arrived", [&] { return !core_->deliveries_wait(); });
  delivery_waited_ += system_clock().now() - begin;
}

void ThreadedWriter::on_sent(uint64_t cookie) {
  const std::lock_guard lock(core_mutex_);
  if (const Status status = contain([&] { core_->on_sent(cookie); }); !status.ok()) fail_locked(status);
  wake_waiters();
}

void ThreadedWriter::on_down(net::Rank peer, const Status& why) {
  const std::lock_guard lock(core_mutex_);
  if (!core_) return;
  const Status status = contain([&] {
    core_->on_down(peer, why);
    announce();
  });
  if (!status.ok()) fail_locked(status);
}

void ThreadedWriter::on_failure(const Status& why) {
  const std::lock_guard lock(core_mutex_);
  fail_locked(why);
}

Nanos ThreadedWriter::on_progress(Nanos now) {
  if (now >= next_tick_) {
    const std::lock_guard lock(core_mutex_);
    next_tick_ = now + kTick;
    const Status status = contain([&] {
      if (core_) core_->tick();
    });
    if (!status.ok()) fail_locked(status);
    if (core_ && core_->owes_news()) next_tick_ = now + kRetry;
  }
  if (const Status status = contain([&] { post_ready(); }); !status.ok()) {
    const std::lock_guard lock(core_mutex_);
    fail_locked(status);
  }
  return posts_wait_.load() ? std::min(next_tick_, now + kRetry) : next_tick_;
}

void ThreadedWriter::send_ready() {
  if (alone_) return;
  if (job_.posts_directly()) {
    post_ready();
  } else {
    job_.wake();
  }
}

void ThreadedWriter::post_ready() {
  post_turns_.take([this] { return post_some(); });
}

// In its turn (post_turns_). False: nothing more may leave now. A frame that cannot be posted for want of memory is
// tried again in the next turn, at the latest after a tick: it has its number, and those behind it wait.
bool ThreadedWriter::post_some() {
  if (posts_begin_ == posts_end_) {
    posts_begin_ = posts_end_ = 0;
    const std::lock_guard lock(core_mutex_);
    if (!core_) return false;
    for (std::optional<net::Post> post; posts_end_ < posts_.size() && (post = core_->next_post());
         ++posts_end_) {
      posts_[posts_end_] = *post;
    }
  }
  if (posts_begin_ == posts_end_) return false;
  const bool full = posts_end_ == posts_.size();
  std::array<uint64_t, kPostsPerTurn> free;
  size_t free_count = 0;
  const Status status = contain([&] {
    for (; posts_begin_ != posts_end_; ++posts_begin_) {
      const net::Post& post = posts_[posts_begin_];
      if (job_.post(channel_, post)) free[free_count++] = post.cookie;
    }
  });
  posts_wait_.store(posts_begin_ != posts_end_);
  const std::lock_guard lock(core_mutex_);
  for (size_t i = 0; i < free_count; ++i) core_->on_sent(free[i]);
  wake_waiters();
  if (!status.ok()) fail_locked(status);
  return status.ok() && full;
}

}  // namespace swale::imd
