// RequestLock: the mutex of JobFs, locked for a program's request. The thread that supplies writers with
// memory takes that mutex again and again while they write; what it has just given back it gets again before
// anybody who was asleep. So it lets all pass that wait, each time before it takes it.
//
//   request:   RequestLock lock(mutex_, requests_);
//   supplier:  requests_.let_pass(); then MutexLock lock(mutex_);
//
// Threads: any. Invariant: each request that has come gets the mutex; let_pass() waits for no later one.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace swale::fs {

class Requests {
 public:
  uint64_t waiting() const { return came_.load() - had_.load(); }
  // Call without the mutex.
  void let_pass() {
    const uint64_t wanted = came_.load();
    for (uint64_t had = had_.load(); had < wanted; had = had_.load()) had_.wait(had);
  }

 private:
  friend class RequestLock;
  Mutex& come(Mutex& mutex) {
    came_.fetch_add(1);
    return mutex;
  }
  void have() {
    had_.fetch_add(1);
    had_.notify_all();
  }

  std::atomic<uint64_t> came_ = 0, had_ = 0;
};

class SCOPED_CAPABILITY RequestLock {
 public:
  RequestLock(Mutex& mutex, Requests& requests) ACQUIRE(mutex) : lock_(requests.come(mutex)) {
    requests.have();
  }
  ~RequestLock() RELEASE() {}  // NOLINT: the analysis wants a body
  RequestLock(const RequestLock&) = delete;
  RequestLock& operator=(const RequestLock&) = delete;

  void unlock() RELEASE() { lock_.unlock(); }
  void lock() ACQUIRE() { lock_.lock(); }

 private:
  MutexLock lock_;
};

}  // namespace swale::fs
