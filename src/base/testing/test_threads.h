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

// True of a thread in `task` (a folder of /proc/self/task) that is no longer the program's, or never was. One
// that has ended, or is about to, is listed for a moment after it was joined. The kernel's own for a ring
// come when a transfer waits, and go when they have long had nothing to do. Told by the flags PF_EXITING and
// PF_IO_WORKER, field 9 of proc_pid_stat(5).
inline bool is_not_ours(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return true;  // it is gone
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 9; ++field) fields >> skipped;
  unsigned long flags = 0;
  fields >> flags;
  return (flags & (0x4 | 0x10)) != 0;
}

// Those of the program that still run.
inline size_t threads_of_this_process() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    count += !is_not_ours(entry.path());
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
