// BoundedQueue: how stages that own threads hand work to each other. A full queue makes the producer wait:
// that is the back-pressure.
//
// Threads: any number of producers and consumers.
// Invariants: (1) size <= capacity; (2) items leave in the order they came; (3) an item that push refused is
// still the caller's; (4) after close nothing enters, and what is inside can still be taken.
// Limits: `capacity` items. Deadlines are on system_clock().
#pragma once

#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "base/clock.h"

namespace swale {

enum class QueueAnswer {
  kDone,
  kTimedOut,  // try_push: full; try_pop: empty
  kClosed,    // pop: and empty
};

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { assert(capacity >= 1); }

  // `item` is moved from only if the answer is kDone.
  QueueAnswer try_push(T&& item) { return push(std::move(item), Deadline{0}); }
  QueueAnswer push(T&& item, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!wait(lock, not_full_, deadline, [&] { return closed_ || items_.size() < capacity_; }))
      return QueueAnswer::kTimedOut;
    if (closed_) return QueueAnswer::kClosed;
    items_.push_back(std::move(item));
    lock.unlock();
    not_empty_.notify_one();
    return QueueAnswer::kDone;
  }

  // `*item` is assigned only if the answer is kDone.
  QueueAnswer try_pop(T* item) { return pop(item, Deadline{0}); }
  QueueAnswer pop(T* item, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!wait(lock, not_empty_, deadline, [&] { return closed_ || !items_.empty(); }))
      return QueueAnswer::kTimedOut;
    if (items_.empty()) return QueueAnswer::kClosed;
    *item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    not_full_.notify_one();
    return QueueAnswer::kDone;
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
    not_full_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  template <class Ready>
  static bool wait(std::unique_lock<std::mutex>& lock, std::condition_variable& condition, Deadline deadline,
                   Ready ready) {
    if (deadline.at == kForever) {
      condition.wait(lock, ready);
      return true;
    }
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.at)};
    return condition.wait_until(lock, until, ready);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::condition_variable not_full_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace swale
