#include "base/biased_mutex.h"

#ifdef __linux__
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <chrono>
#include <thread>

namespace swale {
namespace {

constexpr std::chrono::microseconds kRevocationPoll(20);

#ifdef __linux__
bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool can_fence_other_threads() {
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return registered;
}
void fence_other_threads() {
  // Registered, so it cannot fail in this process; a forked child has to register again.
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}
#else
bool can_fence_other_threads() { return false; }
void fence_other_threads() {}
#endif

}  // namespace

bool BiasedMutex::lock_slowly() {
  mutex_.lock();
  if (revoked_.load(std::memory_order_relaxed)) return false;
  const void* const owner = owner_.load(std::memory_order_relaxed);
  if (owner == nullptr && can_fence_other_threads()) {
    owner_.store(this_thread(), std::memory_order_relaxed);
    inside_.store(true, std::memory_order_relaxed);
    mutex_.unlock();
    return true;
  }
  revoked_.store(true, std::memory_order_relaxed);
  if (owner == nullptr) return false;
  fence_other_threads();
  // From here on the owner sees at its next lock that the bias is revoked; it may still be inside.
  while (inside_.load(std::memory_order_acquire)) std::this_thread::sleep_for(kRevocationPoll);
  return false;
}

}  // namespace swale
