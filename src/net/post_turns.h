// PostTurns: threads that post frames do so one at a time, so that frames leave in the order of their numbers, and none
// waits for another: who finds somebody posting leaves it to that thread, which looks again after it has let go.
//
// Threads: take by any thread.
#pragma once

#include <atomic>
#include <mutex>

namespace swale::net {

class PostTurns {
 public:
  // Calls `post_some` until it returns false, which means that nothing more may leave now; or lets the thread whose turn
  // it is do so.
  template <class PostSome>
  void take(const PostSome& post_some) {
    wanted_.store(true);
    while (wanted_.load()) {
      const std::unique_lock turn(mutex_, std::try_to_lock);
      if (!turn.owns_lock()) return;
      wanted_.store(false);
      while (post_some()) {
      }
    }
  }

 private:
  std::mutex mutex_;  // only tried
  std::atomic<bool> wanted_{false};
};

}  // namespace swale::net
