// contain: the boundary at which an exception becomes a Status. Code that runs on one of the library's
// threads, or that C code calls, runs inside contain: an exception that escaped from it would end the
// application.
//
// Swale reports failures by Status. Exceptions still come from allocations, locks, thread starts and
// functions of the application.
// Threads: any. Errors: kResourceExhausted if memory is exhausted, else kInternal. Never throws.
#pragma once

#include <type_traits>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace swale {

// The Status for the exception that is being handled. Call it in a catch (...) block.
Status status_of_exception() noexcept;

// Runs `body`, which returns a Status or nothing. An exception of the body is returned as a Status. (The
// caller holds the locks that a body requires; the analysis of base/mutex.h cannot see them in here.)
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
