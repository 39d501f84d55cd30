// The threads of a test's own process, for tests of who starts and ends them.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
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

// True of a thread in `task` (a folder of /proc/self/task) that has ended, or is about to: the kernel lists it
// for a moment after it was joined. Its flags, field 9 of proc_pid_stat(5), then have PF_EXITING.
inline bool thread_exits(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return true;  // it is gone
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 9; ++field) fields >> skipped;
  unsigned long flags = 0;
  fields >> flags;
  return (flags & 0x4) != 0;
}

// Those that still run.
inline size_t threads_of_this_process() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    count += !thread_exits(entry.path());
  }
  return count;
}

// For threads that nobody joins: the number when it is the expected one, or after ten seconds.
inline size_t threads_expecting(size_t expected) {
  size_t count = threads_of_this_process();
  for (int i = 0; i < 1'000 && count != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    count = threads_of_this_process();
  }
  return count;
}

}  // namespace swale::test
