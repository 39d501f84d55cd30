// Futexes in memory that processes share. Threads: any, and signal handlers.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace swale::fs {

// Sleeps while *word is `seen`, for at most `nanos`. Signals end it early.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t seen, uint64_t nanos) {
  const timespec time{static_cast<time_t>(nanos / 1'000'000'000), static_cast<long>(nanos % 1'000'000'000)};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, nullptr, 0);
}
inline void futex_wake(const std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace swale::fs
