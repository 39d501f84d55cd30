// start_thread: starts one of the library's threads, or says why it cannot.
//
// Threads: any. Errors: kResourceExhausted if the system or memory refuses; `thread` is unchanged then. Never
// throws.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/contain.h"
#include "base/status.h"

namespace swale {

// `what` completes the sentence "cannot start ...".
template <class Body>
Status start_thread(std::thread* thread, std::string_view what, Body&& body) noexcept {
  return contain([&]() -> Status {
    try {
      *thread = std::thread(std::forward<Body>(body));
    } catch (const std::system_error& failure) {
      return error(Code::kResourceExhausted, Scope::kNode, "cannot start {}: {}", what, failure.what());
    }
    return {};
  });
}

}  // namespace swale
