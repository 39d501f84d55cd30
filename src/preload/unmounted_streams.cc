// Files of a tree that is mounted nowhere, which the C library would open inside itself (unmounted.h): it
// gets the descriptor instead.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr size_t kDrawn = 6;
constexpr int kTriesMax = 10'000;

// -1: the C library says what is wrong with it.
int flags_of(const char* mode) {
  int flags = 0;
  switch (*mode) {
    case 'r':
      flags = O_RDONLY;
      break;
    case 'w':
      flags = O_WRONLY | O_CREAT | O_TRUNC;
      break;
    case 'a':
      flags = O_WRONLY | O_CREAT | O_APPEND;
      break;
    default:
      return -1;
  }
  for (const char* each = mode + 1; *each != '\0' && *each != ','; ++each) {
    if (*each == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*each == 'x') flags |= O_EXCL;
    if (*each == 'e') flags |= O_CLOEXEC;
  }
  return flags;
}

}  // namespace

bool fopen_unmounted(const char* path, const char* mode, FILE** stream) noexcept {
  if (!is_unmounted()) return false;
  const int flags = flags_of(mode);
  int fd = -1;
  if (flags < 0 || !open_unmounted(AT_FDCWD, path, flags, 0666, &fd)) return false;
  *stream = fd < 0 ? nullptr : next<FILE*(int, const char*)>(calls::fdopen)(fd, mode);
  if (fd >= 0 && *stream == nullptr) raw(SYS_close, fd);
  return true;
}

// The stream opens the descriptor's file anew, by /proc.
bool freopen_unmounted(const char* path, const char* mode, FILE* old, FILE** stream) noexcept {
  if (!is_unmounted() || path == nullptr) return false;
  const int flags = flags_of(mode);
  int fd = -1;
  if (flags < 0 || !open_unmounted(AT_FDCWD, path, flags | O_CLOEXEC, 0666, &fd)) return false;
  auto* const freopen_next = next<FILE*(const char*, const char*, FILE*)>(calls::freopen);
  char again[32];
  ::snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
  char without_x[32] = "";  // it is there by now
  for (size_t i = 0, n = 0; mode[i] != '\0' && n + 1 < sizeof(without_x); ++i)
    if (mode[i] != 'x') without_x[n++] = mode[i];
  const int failed = fd < 0 ? errno : 0;
  *stream = freopen_next(fd < 0 ? "" : again, without_x, old);
  if (fd >= 0) raw(SYS_close, fd);
  if (failed != 0) errno = failed;
  return true;
}

// As the C library: the six Xs before the suffix.
bool mkstemp_unmounted(char* path, int suffix, int flags, int* fd) noexcept {
  if (!is_unmounted() || path == nullptr) return false;
  const size_t bytes = ::strlen(path);
  if (suffix < 0 || bytes < kDrawn + static_cast<size_t>(suffix)) return false;
  char* const drawn = path + bytes - static_cast<size_t>(suffix) - kDrawn;
  if (::strncmp(drawn, "XXXXXX", kDrawn) != 0) return false;
  const int wanted = (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL;
  for (int i = 0; i < kTriesMax; ++i) {
    unsigned char random[kDrawn];
    if (raw(SYS_getrandom, random, sizeof(random), 0L) != static_cast<long>(sizeof(random))) break;
    for (size_t at = 0; at < kDrawn; ++at) drawn[at] = kLetters[random[at] % (sizeof(kLetters) - 1)];
    if (!open_unmounted(AT_FDCWD, path, wanted, 0600, fd)) {
      ::memcpy(drawn, "XXXXXX", kDrawn);
      return false;
    }
    if (*fd >= 0 || errno != EEXIST) return true;
  }
  *fd = -1;
  errno = EEXIST;
  return true;
}

}  // namespace swale::preload
