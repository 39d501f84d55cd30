// Extended attributes in trees that are mounted nowhere (unmounted.h): the server has those of files, the
// backing those of directories; and those by which the commands ask a tree.
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/light.h"
#include "preload/log_right.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

using fs::UnmountedAnswer;
using fs::UnmountedCall;
using fs::UnmountedRequest;

// The place of a file of the tree, in a request of that kind. A path: `fd` is -1.
bool place_attribute(int fd, const char* path, Links links, UnmountedCall call, UnmountedRequest* request) {
  request->call = call;
  return fd >= 0 ? file_of_unmounted(fd, request) : place_unmounted(AT_FDCWD, path, links, request);
}

// True: it is a file of the tree, and *failed is 0 or an errno. Else the kernel knows.
bool ask_attribute(const UnmountedRequest& request, int* failed, int* text = nullptr) {
  UnmountedAnswer answer;
  *failed = ask_unmounted(request, &answer, text);
  return *failed != 0 || answer.kind == S_IFREG;
}

// Puts the name behind the path; 0, or an errno.
int put_name(const char* name, UnmountedRequest* request) {
  const size_t bytes = name == nullptr ? 0 : ::strnlen(name, XATTR_NAME_MAX + 1);
  if (bytes == 0 || bytes > XATTR_NAME_MAX) return ERANGE;
  ::memcpy(request->paths + request->path_bytes, name, bytes);
  request->other_bytes = static_cast<uint32_t>(bytes);
  return 0;
}

// What a call that reads returns of `text`, which it closes.
ssize_t hand_out(int text, void* value, size_t bytes) {
  if (text < 0) {
    errno = EMFILE;
    return -1;
  }
  const long size = raw(SYS_lseek, text, 0L, SEEK_END);
  const long got = bytes > 0 ? raw(SYS_pread64, text, value, bytes, 0L) : size;
  raw(SYS_close, text);
  if (got == size) return size;
  errno = ERANGE;
  return -1;
}

// What the call returns; -2: the kernel is to be asked.
ssize_t read_attribute(int fd, const char* path, Links links, UnmountedCall call, const char* name,
                       void* value, size_t bytes) {
  UnmountedRequest request;
  if (!is_unmounted() || !place_attribute(fd, path, links, call, &request)) return -2;
  int text = -1;
  int failed = call == UnmountedCall::kGetAttribute ? put_name(name, &request) : 0;
  if (failed == 0 && !ask_attribute(request, &failed, &text)) return -2;
  if (failed == 0) return hand_out(text, value, bytes);
  errno = failed;
  return -1;
}

// With the value behind the name, if there is one.
int change_attribute(int fd, const char* path, Links links, UnmountedCall call, const char* name,
                     const void* value, size_t bytes, int flags) {
  UnmountedRequest request;
  if (!is_unmounted() || !place_attribute(fd, path, links, call, &request)) return -2;
  request.flags = static_cast<uint32_t>(flags);
  int failed = put_name(name, &request);
  if (failed == 0 && call == UnmountedCall::kSetAttribute) {
    char* const end = request.paths + request.path_bytes + request.other_bytes;
    *end = '\0';
    if (bytes >= fs::kUnmountedPathMax - request.other_bytes)
      failed = bytes > XATTR_SIZE_MAX ? E2BIG : ENOSPC;
    else if (bytes > 0)
      ::memcpy(end + 1, value, bytes);
    request.other_bytes += static_cast<uint32_t>(1 + bytes);
  }
  if (failed == 0 && !ask_attribute(request, &failed)) return -2;
  if (failed == 0) return 0;
  errno = failed;
  return -1;
}

// Attributes by which the commands ask the tree of a mount (fs/job/job_fs_options.h).
constexpr char kStats[] = "user.swale.fs";
constexpr char kCommand[] = "user.swale.command";

// What getxattr returns; -2: it asks something else.
ssize_t tell_stats(const char* path, const char* name, void* value, size_t bytes) {
  if (name == nullptr || ::strcmp(name, kStats) != 0 || !is_directory_unmounted(AT_FDCWD, path)) return -2;
  UnmountedRequest request;
  UnmountedAnswer answer;
  request.call = UnmountedCall::kStats;
  int text = -1;
  if (const int failed = ask_unmounted(request, &answer, &text); failed != 0 || text < 0) {
    errno = failed != 0 ? failed : EMFILE;
    return -1;
  }
  return hand_out(text, value, bytes);
}

// What setxattr returns; -2: it says something else.
int obey_command(const char* path, const char* name, const void* value, size_t bytes) {
  if (name == nullptr || ::strcmp(name, kCommand) != 0 || !is_directory_unmounted(AT_FDCWD, path)) return -2;
  UnmountedRequest request;
  UnmountedAnswer answer;
  request.call = UnmountedCall::kSyncAll;
  const bool syncs = bytes == 4 && ::memcmp(value, "sync", 4) == 0;
  const int failed = syncs ? ask_unmounted(request, &answer) : EINVAL;
  if (failed != 0) errno = failed;
  return failed == 0 ? 0 : -1;
}

}  // namespace

extern "C" {

ssize_t swale_take_getxattr(const char* path, const char* name, void* value, size_t bytes) {
  if (is_unmounted())
    if (const ssize_t told = tell_stats(path, name, value, bytes); told != -2) return told;
  const ssize_t got =
      read_attribute(-1, path, Links::kFollowed, UnmountedCall::kGetAttribute, name, value, bytes);
  if (got != -2) return got;
  return next<ssize_t(const char*, const char*, void*, size_t)>(calls::getxattr)(path, name, value, bytes);
}

ssize_t swale_take_lgetxattr(const char* path, const char* name, void* value, size_t bytes) {
  const ssize_t got =
      read_attribute(-1, path, Links::kStay, UnmountedCall::kGetAttribute, name, value, bytes);
  if (got != -2) return got;
  return next<ssize_t(const char*, const char*, void*, size_t)>(calls::lgetxattr)(path, name, value, bytes);
}

ssize_t swale_take_fgetxattr(int fd, const char* name, void* value, size_t bytes) {
  ready();
  const Held held(fd);  // a placeholder becomes real
  const ssize_t got =
      held ? -2 : read_attribute(fd, nullptr, Links::kStay, UnmountedCall::kGetAttribute, name, value, bytes);
  if (got != -2) return got;
  return next<ssize_t(int, const char*, void*, size_t)>(calls::fgetxattr)(fd, name, value, bytes);
}

ssize_t swale_take_listxattr(const char* path, char* names, size_t bytes) {
  const ssize_t got =
      read_attribute(-1, path, Links::kFollowed, UnmountedCall::kListAttributes, nullptr, names, bytes);
  if (got != -2) return got;
  return next<ssize_t(const char*, char*, size_t)>(calls::listxattr)(path, names, bytes);
}

ssize_t swale_take_llistxattr(const char* path, char* names, size_t bytes) {
  const ssize_t got =
      read_attribute(-1, path, Links::kStay, UnmountedCall::kListAttributes, nullptr, names, bytes);
  if (got != -2) return got;
  return next<ssize_t(const char*, char*, size_t)>(calls::llistxattr)(path, names, bytes);
}

ssize_t swale_take_flistxattr(int fd, char* names, size_t bytes) {
  ready();
  const Held held(fd);
  const ssize_t got =
      held ? -2
           : read_attribute(fd, nullptr, Links::kStay, UnmountedCall::kListAttributes, nullptr, names, bytes);
  if (got != -2) return got;
  return next<ssize_t(int, char*, size_t)>(calls::flistxattr)(fd, names, bytes);
}

int swale_take_setxattr(const char* path, const char* name, const void* value, size_t bytes, int flags) {
  if (is_unmounted())
    if (const int obeyed = obey_command(path, name, value, bytes); obeyed != -2) return obeyed;
  const int done =
      change_attribute(-1, path, Links::kFollowed, UnmountedCall::kSetAttribute, name, value, bytes, flags);
  if (done != -2) return done;
  return next<int(const char*, const char*, const void*, size_t, int)>(calls::setxattr)(path, name, value,
                                                                                        bytes, flags);
}

int swale_take_lsetxattr(const char* path, const char* name, const void* value, size_t bytes, int flags) {
  const int done =
      change_attribute(-1, path, Links::kStay, UnmountedCall::kSetAttribute, name, value, bytes, flags);
  if (done != -2) return done;
  return next<int(const char*, const char*, const void*, size_t, int)>(calls::lsetxattr)(path, name, value,
                                                                                         bytes, flags);
}

int swale_take_fsetxattr(int fd, const char* name, const void* value, size_t bytes, int flags) {
  ready();
  const Held held(fd);
  const int done = held ? -2
                        : change_attribute(fd, nullptr, Links::kStay, UnmountedCall::kSetAttribute, name,
                                           value, bytes, flags);
  if (done != -2) return done;
  return next<int(int, const char*, const void*, size_t, int)>(calls::fsetxattr)(fd, name, value, bytes,
                                                                                 flags);
}

int swale_take_removexattr(const char* path, const char* name) {
  const int done =
      change_attribute(-1, path, Links::kFollowed, UnmountedCall::kRemoveAttribute, name, nullptr, 0, 0);
  if (done != -2) return done;
  return next<int(const char*, const char*)>(calls::removexattr)(path, name);
}

int swale_take_lremovexattr(const char* path, const char* name) {
  const int done =
      change_attribute(-1, path, Links::kStay, UnmountedCall::kRemoveAttribute, name, nullptr, 0, 0);
  if (done != -2) return done;
  return next<int(const char*, const char*)>(calls::lremovexattr)(path, name);
}

int swale_take_fremovexattr(int fd, const char* name) {
  ready();
  const Held held(fd);
  const int done = held ? -2
                        : change_attribute(fd, nullptr, Links::kStay, UnmountedCall::kRemoveAttribute, name,
                                           nullptr, 0, 0);
  if (done != -2) return done;
  return next<int(int, const char*)>(calls::fremovexattr)(fd, name);
}

}  // extern "C"

}  // namespace swale::preload
