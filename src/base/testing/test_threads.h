// The threads of a test's own process, for tests of who starts and ends them.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <thread>

namespace swale::test {

// It kills a child of fork that starts threads, if its parent had some.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitizer = false;
#endif

inline size_t threads_of_this_process() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// The kernel takes a thread out of the list a moment after it was joined: the number when it is the expected
// one, or after ten seconds.
inline size_t threads_expecting(size_t expected) {
  size_t count = threads_of_this_process();
  for (int i = 0; i < 1'000 && count != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    count = threads_of_this_process();
  }
  return count;
}

}  // namespace swale::test
