// Watch: a thread that looks at something again and again, from start() to stop().
//
// Threads: `look` runs in the thread of the watch, which leaves signals to the thread that serves the mount.
// Errors of start(): start_thread's.
#pragma once

#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"
#include "fuse/mounted.h"

namespace swale::fuse {

class Watch {
 public:
  Watch(Nanos every, std::function<void()> look) : every_(every), look_(std::move(look)) {}
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // `what` as start_thread has it.
  Status start(std::string_view what) {
    const SignalsBlocked blocked;
    return start_thread(&thread_, what, [this] {
      while (!is_over_soon()) look_();
    });
  }
  void stop() {
    {
      const MutexLock lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool is_over_soon() {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, every_, [&]() REQUIRES(mutex_) { return over_; });
    return over_;
  }

  const Nanos every_;
  const std::function<void()> look_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace swale::fuse
