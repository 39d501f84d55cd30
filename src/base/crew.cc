#include "base/crew.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace swale {

std::shared_ptr<Crew> Crew::of_this_process() {
  static Mutex mutex;
  static std::weak_ptr<Crew> shared;
  static pid_t process = 0;
  const MutexLock lock(mutex);
  // a forked child inherits an object without threads
  std::shared_ptr<Crew> crew = process == ::getpid() ? shared.lock() : nullptr;
  if (crew) return crew;
  crew = std::make_shared<Crew>();
  shared = crew;
  process = ::getpid();
  return crew;
}

Crew::~Crew() {
  assert(members_.empty());
  const MutexLock lifecycle(lifecycle_mutex_);
  end_surplus_threads();
}

void Crew::push(Member* member) {
  member->state_ = Member::State::kReady;
  member->next_ = nullptr;
  (ready_last_ != nullptr ? ready_last_->next_ : ready_first_) = member;
  ready_last_ = member;
}

Crew::Member* Crew::pop() {
  Member* const member = ready_first_;
  ready_first_ = member->next_;
  if (ready_first_ == nullptr) ready_last_ = nullptr;
  return member;
}

void Crew::take_out(Member* member) {
  if (member->state_ != Member::State::kReady) return;
  Member* before = nullptr;
  for (Member* at = ready_first_; at != member; at = at->next_) before = at;
  (before != nullptr ? before->next_ : ready_first_) = member->next_;
  if (ready_last_ == member) ready_last_ = before;
  member->state_ = Member::State::kIdle;
}

size_t Crew::wanted() const {
  size_t most = 0;
  for (const Member* member : members_) most = std::max(most, member->threads_);
  return most;
}

size_t Crew::thread_count() const {
  const MutexLock lock(mutex_);
  return thread_count_;
}

Status Crew::join(Member* member, size_t threads) {
  assert(threads > 0 && member->threads_ == 0);
  if (threads > kThreadsMax)
    return invalid_argument("{} threads, where at most {} are possible", threads, kThreadsMax);
  MutexLock lifecycle(lifecycle_mutex_);
  threads_.reserve(threads);
  {
    const MutexLock lock(mutex_);
    members_.push_back(member);
    member->threads_ = threads;
    member->state_ = Member::State::kIdle;
    threads_wanted_ = wanted();
  }
  while (threads_.size() < threads) {
    std::thread thread;
    Status started =
        start_thread(&thread, "a worker thread", [this, index = threads_.size()] { run(index); });
    if (!started.ok()) {
      lifecycle.unlock();
      leave(member);
      return started;
    }
    threads_.push_back(std::move(thread));
    const MutexLock lock(mutex_);
    thread_count_ = threads_.size();
  }
  return {};
}

void Crew::leave(Member* member) {
  const MutexLock lifecycle(lifecycle_mutex_);
  {
    MutexLock lock(mutex_);
    if (member->threads_ == 0) return;
    member->threads_ = 0;  // a wake while the turn is waited for must not put it into the queue again
    std::erase(members_, member);
    take_out(member);
    left_.wait(lock, [member] {
      return member->state_ != Member::State::kRunning && member->state_ != Member::State::kRunningAndWoken;
    });
    threads_wanted_ = wanted();
  }
  end_surplus_threads();
}

void Crew::end_surplus_threads() {
  work_.notify_all();
  size_t keep = 0;
  {
    const MutexLock lock(mutex_);
    keep = threads_wanted_;
  }
  while (threads_.size() > keep) {
    threads_.back().join();
    threads_.pop_back();
  }
  const MutexLock lock(mutex_);
  thread_count_ = threads_.size();
}

void Crew::wake(Member* member) {
  {
    const MutexLock lock(mutex_);
    if (member->threads_ == 0) return;
    if (member->state_ == Member::State::kRunning) member->state_ = Member::State::kRunningAndWoken;
    if (member->state_ != Member::State::kIdle) return;
    push(member);
  }
  work_.notify_one();
}

void Crew::run(size_t index) {
  MutexLock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&]() REQUIRES(mutex_) { return index >= threads_wanted_ || ready_first_ != nullptr; });
    if (index >= threads_wanted_) break;
    Member* const member = pop();
    member->state_ = Member::State::kRunning;
    lock.unlock();
    const bool more = member->turn();
    lock.lock();
    const bool again = more || member->state_ == Member::State::kRunningAndWoken;
    const bool stays = member->threads_ != 0;
    member->state_ = Member::State::kIdle;
    if (!stays) {
      left_.notify_all();
    } else if (again) {
      push(member);
    }
  }
  if (ready_first_ != nullptr)
    work_.notify_one();  // the notification may have been meant for a thread that stays
}

}  // namespace swale
