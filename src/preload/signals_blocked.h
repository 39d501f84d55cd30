// SignalsBlocked: while one lives, no handler interrupts this thread: so whoever waits for it cannot have
// interrupted it.
// Threads: any, and signal handlers.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include <cstdint>

#include "preload/next_calls.h"

namespace swale::preload {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    const uint64_t all = ~uint64_t{0};
    raw(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before_, sizeof(all));
  }
  ~SignalsBlocked() { raw(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_)); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  uint64_t before_ = 0;
};

}  // namespace swale::preload
