#include "preload/messages.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "preload/next_calls.h"

namespace swale::preload {
namespace {

constexpr uint32_t kMessagesMax = 20;
constinit std::atomic<uint32_t> messages = 0;

}  // namespace

__attribute__((format(printf, 1, 2))) void tell(const char* format, ...) noexcept {
  const uint32_t count = messages.fetch_add(1);
  if (count >= kMessagesMax) return;
  const int kept = errno;
  char line[PATH_MAX + 1024];
  va_list arguments;
  va_start(arguments, format);
  int bytes = ::snprintf(line, sizeof line, "swale preload: ");
  bytes += ::vsnprintf(line + bytes, sizeof line - static_cast<size_t>(bytes) - 64, format, arguments);
  va_end(arguments);
  const size_t end = strnlen(line, sizeof line - 64);
  const char* const more = count + 1 == kMessagesMax ? " (further messages are not printed)\n" : "\n";
  memcpy(line + end, more, strlen(more));
  raw(SYS_write, STDERR_FILENO, line, end + strlen(more));
  errno = kept;
}

}  // namespace swale::preload
