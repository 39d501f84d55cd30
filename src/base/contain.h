// contain: the boundary at which an exception becomes a Status. What runs on a thread of the library's own, or is called
// by code that knows no exceptions, runs inside it: an exception that left there would end the application.
//
// Swale reports failures by Status. What can still throw is an allocation, a lock, the start of a thread, and the
// application's own functions.
// Threads: any. Errors: kResourceExhausted for memory that is not to be had, else kInternal. Never throws itself.
#pragma once

#include <type_traits>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace swale {

// What the exception that is being handled means. For the catch (...) block.
Status status_of_exception() noexcept;

// Runs `body`, which returns a Status or nothing. What it throws comes back as a Status. (The lock that a body requires is its
// caller's, which the analysis of base/mutex.h cannot see in here.)
template <class Body>
Status contain(Body&& body) noexcept NO_THREAD_SAFETY_ANALYSIS {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      std::forward<Body>(body)();
      return {};
    } else {
      return std::forward<Body>(body)();
    }
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace swale
