// BiasedMutex: a mutex whose first user locks and unlocks it without an atomic read-modify-write: two plain
// stores and a load, 1 ns, where std::mutex takes 12. For objects that any thread may use and one thread
// nearly always does.
//
// The thread that locks first gets the bias. The first other thread revokes the bias for good: from then on
// this is a std::mutex. Revoking is safe only if the owner's store of "I am inside" is visible before its
// load of "is the bias revoked". The owner executes no fence; the revoker makes the kernel execute one in the
// owner's thread (membarrier(2), PRIVATE_EXPEDITED). A kernel without this call never gives a bias.
//
//   const BiasedMutex::Guard guard(mutex);
//
// After fork the child must not use a BiasedMutex that a thread of the parent was inside of, as with
// std::mutex.
// Threads: all calls by any thread. Not recursive.
#pragma once

#include <atomic>
#include <mutex>

namespace swale {

class BiasedMutex {
 public:
  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

  // Holds the mutex while it lives.
  class Guard {
   public:
    explicit Guard(BiasedMutex& mutex) : mutex_(mutex), by_bias_(mutex.lock()) {}
    ~Guard() { mutex_.unlock(by_bias_); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    BiasedMutex& mutex_;
    const bool by_bias_;
  };

  // Tries the biased path only, for code that must not contain calls. False: not locked.
  bool try_lock_by_bias() {
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return false;
    inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the compiler's order
    if (!revoked_.load(std::memory_order_relaxed)) [[likely]]
      return true;
    inside_.store(false, std::memory_order_release);
    return false;
  }
  void unlock_by_bias() { inside_.store(false, std::memory_order_release); }

  // Whether this thread's lock calls take the biased path. For tests.
  bool biased_to_this_thread() const {
    return owner_.load(std::memory_order_relaxed) == this_thread() &&
           !revoked_.load(std::memory_order_relaxed);
  }

 private:
  // An address that no other living thread has. It is one byte, so that it fits into the static TLS block
  // also when the library is loaded late; access to that block needs no function call.
  static const void* this_thread() {
    [[gnu::tls_model("initial-exec")]] static thread_local char place;
    return &place;
  }

  // Returns whether the biased path was taken; unlock needs to know.
  bool lock() { return try_lock_by_bias() || lock_slowly(); }
  void unlock(bool by_bias) {
    if (by_bias) [[likely]] {
      unlock_by_bias();
    } else {
      mutex_.unlock();
    }
  }
  bool lock_slowly();

  std::atomic<const void*> owner_{nullptr};  // set once
  std::atomic<bool> inside_{false};          // the owner holds the mutex by the biased path
  std::atomic<bool> revoked_{false};         // written under mutex_
  std::mutex mutex_;
};

}  // namespace swale
