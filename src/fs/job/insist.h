// insist(): does again what fails for want of memory alone: of a change that has begun, what must be ended;
// of one that has happened, what must be noted. The body may have done a part of it before: it is idempotent.
//
// Threads: pure functions. Limits: kInsistTries; after these memory is really gone, and the failure stays.
#pragma once

#include <cerrno>
#include <thread>

#include "base/contain.h"

namespace swale::fs {

inline constexpr int kInsistTries = 100;

// `again`: it was done more than once, so that the first time may have done all.
template <class Body>
Status insist(const Body& body, bool* again = nullptr) noexcept {
  Status done;
  for (int tries = 0; tries < kInsistTries; ++tries) {
    done = contain(body);
    if (done.code() != Code::kResourceExhausted) break;
    if (again != nullptr) *again = true;
    std::this_thread::yield();
  }
  return done;
}

// Of a body that returns an errno: that, or the one of what it throws.
template <class Body>
int errno_of(const Body& body) noexcept {
  int failed = 0;
  const Status contained = contain([&] { failed = body(); });
  return contained.ok() ? failed : contained.posix_error();
}

}  // namespace swale::fs
