#include "base/own_process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace swale {
namespace {

std::atomic<uint64_t> forks{0};

void note_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

// Registered at the first use, not when the library is loaded. False: there is no memory for that.
bool notices_forks() noexcept {
  static const bool registered = ::pthread_atfork(nullptr, nullptr, note_fork) == 0;
  return registered;
}

}  // namespace

OwnProcess::OwnProcess() noexcept : forks_(0), id_(::getpid()) {
  if (notices_forks()) forks_ = forks.load(std::memory_order_relaxed);
}

bool OwnProcess::is_this() const noexcept {
  return notices_forks() ? forks.load(std::memory_order_relaxed) == forks_ : ::getpid() == id_;
}

}  // namespace swale
