// Mutex, MutexLock, CondVar: std::mutex, std::unique_lock and std::condition_variable with annotations. With
// them, clang proves at compile time that code locks a mutex before it touches what is GUARDED_BY it
// (-Wthread-safety; libstdc++'s types have no annotations). They cost nothing: every call is inline and calls
// the std one.
//
//   Mutex mutex_;
//   int count_ GUARDED_BY(mutex_) = 0;
//
//   const MutexLock lock(mutex_);
//   changed_.wait(lock, [&]() REQUIRES(mutex_) { return count_ > 0; });
//
// Other compilers see no annotations and check nothing: `make check` runs clang over src.
// Threads: as the std ones.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"

#if defined(__clang__)
#define SWALE_ANNOTATION(x) __attribute__((x))
#else
#define SWALE_ANNOTATION(x)
#endif

#define CAPABILITY(name) SWALE_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY SWALE_ANNOTATION(scoped_lockable)
#define GUARDED_BY(mutex) SWALE_ANNOTATION(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) SWALE_ANNOTATION(pt_guarded_by(mutex))
#define ACQUIRED_BEFORE(...) SWALE_ANNOTATION(acquired_before(__VA_ARGS__))
#define REQUIRES(...) SWALE_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SWALE_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) SWALE_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) SWALE_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) SWALE_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(...) SWALE_ANNOTATION(assert_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS SWALE_ANNOTATION(no_thread_safety_analysis)

namespace swale {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Tells the analysis what it cannot see: a caller in C holds the mutex. Checks nothing.
  void assert_held() const ASSERT_CAPABILITY(this) {}

 private:
  friend class MutexLock;
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex while it lives, except between unlock and lock.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  // One that try_lock has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t) REQUIRES(mutex) : lock_(mutex.mutex_, std::adopt_lock) {}
  ~MutexLock() RELEASE() {}  // NOLINT: the analysis wants a body
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() RELEASE() { lock_.unlock(); }
  void lock() ACQUIRE() { lock_.lock(); }

 private:
  friend class CondVar;
  mutable std::unique_lock<std::mutex> lock_;
};

// Gives up, while it lives, a mutex that a caller has locked; also if what happens meanwhile throws.
class SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }  // what it releases is the giving up
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// The lock given to a wait is held when the wait begins and when it ends; the analysis ignores the time
// between. A function that is called with the mutex locked, and has no lock of its own, gives the mutex.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  void wait(const MutexLock& lock) { changed_.wait(lock.lock_); }
  template <class Done>
  void wait(const MutexLock& lock, Done done) {
    changed_.wait(lock.lock_, done);
  }
  // False: not done after `nanos`.
  template <class Done>
  bool wait_for(const MutexLock& lock, Nanos nanos, Done done) {
    return changed_.wait_for(lock.lock_, std::chrono::nanoseconds(nanos), done);
  }
  void wait_for(const MutexLock& lock, Nanos nanos) {
    changed_.wait_for(lock.lock_, std::chrono::nanoseconds(nanos));
  }
  void wait(Mutex& mutex) REQUIRES(mutex) {
    Lent lent(mutex);
    changed_.wait(lent.lock);
  }
  void wait_for(Mutex& mutex, Nanos nanos) REQUIRES(mutex) {
    Lent lent(mutex);
    changed_.wait_for(lent.lock, std::chrono::nanoseconds(nanos));
  }

 private:
  struct Lent {
    explicit Lent(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Lent() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace swale
