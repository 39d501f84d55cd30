// The threads of a ThreadedWriter that are not the application's: workers, storage, the progress thread's events.
#include <array>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "imd/threaded_writer.h"

namespace swale::imd {
namespace {

constexpr size_t kPostsPerTurn = 16;
constexpr Nanos kTick = seconds(1);

}  // namespace

void ThreadedWriter::work(uint32_t way) {
  Lock core_lock(core_mutex_);
  while (!stopping_) {
    std::optional<Partition::Task> task;
    if (!at_rest()) task = core_->next_task(way);
    if (!task) {
      workers_.wait(core_lock);
      continue;
    }
    core_lock.unlock();
    task->work();
    core_lock.lock();
    core_->finish_task(*task);
    announce();
    send_ready(core_lock);
  }
}

void ThreadedWriter::store() {
  Lock core_lock(core_mutex_);
  while (!stopping_ || io_queue_->in_flight() != 0) {
    if (const std::optional<EpochProtocol::Commit> next = core_->take_commit()) {
      commit(core_lock, *next);
    } else if (!start_io(core_lock)) {
      io_queue_->in_flight() != 0 ? reap_io(core_lock) : storage_.wait(core_lock);
    }
  }
}

void ThreadedWriter::commit(Lock& core_lock, const EpochProtocol::Commit& commit) {
  core_lock.unlock();
  const Status status = committer_->commit(commit, epoch_id(opened_.job_id, commit.epoch));
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
  std::vector<io::Completion> completions;
  io_queue_->wait(1, &completions);
  core_lock.lock();
  storage_in_queue_ = false;
  for (const io::Completion& completion : completions) {
    core_->finish_io(*std::exchange(io_running_[completion.tag], std::nullopt), completion.status);
  }
  announce();
  send_ready(core_lock);
}

void ThreadedWriter::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  Lock core_lock(core_mutex_);
  if (!core_) return;
  core_->on_frame(from, header, payload);
  announce();
  if (delivery_ == Ablation::Delivery::kWait && core_->deliveries_wait()) wait_for_delivery(core_lock);
}

// Ends: workers and storage make room without anything from the network.
void ThreadedWriter::wait_for_delivery(Lock& core_lock) {
  const Nanos begin = system_clock().now();
  wait_for(core_lock, "room for what has arrived", [&] { return !core_->deliveries_wait(); });
  delivery_waited_ += system_clock().now() - begin;
}

void ThreadedWriter::on_sent(uint64_t cookie) {
  const std::lock_guard lock(core_mutex_);
  core_->on_sent(cookie);
  wake_waiters();
}

void ThreadedWriter::on_down(net::Rank peer, const Status& why) {
  const std::lock_guard lock(core_mutex_);
  if (!core_) return;
  core_->on_down(peer, why);
  announce();
}

Nanos ThreadedWriter::on_progress(Nanos now) {
  if (now >= next_tick_) {
    next_tick_ = now + kTick;
    const std::lock_guard lock(core_mutex_);
    if (core_) core_->tick();
  }
  post_ready();
  return next_tick_;
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

// In its turn (post_turns_). False: nothing more may leave now.
bool ThreadedWriter::post_some() {
  std::array<net::Post, kPostsPerTurn> posts;
  size_t count = 0;
  {
    const std::lock_guard lock(core_mutex_);
    if (!core_) return false;
    for (std::optional<net::Post> post; count < posts.size() && (post = core_->next_post()); ++count) {
      posts[count] = *post;
    }
  }
  if (count == 0) return false;
  std::array<bool, kPostsPerTurn> free{};
  for (size_t i = 0; i < count; ++i) free[i] = job_.post(channel_, posts[i]);
  const std::lock_guard lock(core_mutex_);
  for (size_t i = 0; i < count; ++i) {
    if (free[i]) core_->on_sent(posts[i].cookie);
  }
  wake_waiters();
  return count == posts.size();
}

}  // namespace swale::imd
