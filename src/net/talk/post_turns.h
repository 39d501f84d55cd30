// PostTurns: threads that post frames do so one at a time, so that frames leave in the order of their
// numbers, and none waits for another: who finds somebody posting leaves it to that thread, which looks again
// after it has let go.
//
// Threads: take by any thread.
#pragma once

#include <atomic>

#include "base/mutex.h"

namespace swale::net {

class PostTurns {
 public:
  // Calls `post_some` until it returns false, which means that nothing more may leave now; or lets the thread
  // whose turn it is do so.
  template <class PostSome>
  void take(const PostSome& post_some) {
    wanted_.store(true);
    while (wanted_.load()) {
      if (!mutex_.try_lock()) return;
      const MutexLock turn(mutex_, std::adopt_lock);
      wanted_.store(false);
      while (post_some()) {
      }
    }
  }

 private:
  Mutex mutex_;  // only tried
  std::atomic<bool> wanted_{false};
};

}  // namespace swale::net
