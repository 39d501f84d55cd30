// Extended attributes in trees that are mounted nowhere (unmounted.h), where files have none, and those by
// which the commands ask a tree.
#include <errno.h>
#include <fcntl.h>
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

// Reading them is how programs find out: no reason for a message.
bool has_no_attributes(const char* path, Links links) {
  UnmountedAnswer answer;
  if (!is_unmounted() || !is_file_unmounted(AT_FDCWD, path, links, &answer)) return false;
  errno = EOPNOTSUPP;
  return true;
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
  const long size = raw(SYS_lseek, text, 0L, SEEK_END);
  long got = size;
  if (bytes > 0) got = raw(SYS_pread64, text, value, bytes, 0L);
  raw(SYS_close, text);
  if (bytes == 0 || got == size) return size;
  errno = ERANGE;
  return -1;
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

// A tool that copies a file tries also what only some file systems have, and goes on without.
bool refuse_attribute(const char* call, const char* path, Links links, const char* name, int* result) {
  if (name != nullptr && ::strncmp(name, "user.", 5) == 0)
    return no_file_unmounted(call, AT_FDCWD, path, links, result);
  *result = -1;
  return has_no_attributes(path, links);
}

}  // namespace

extern "C" {

ssize_t swale_take_getxattr(const char* path, const char* name, void* value, size_t bytes) {
  if (is_unmounted())
    if (const ssize_t told = tell_stats(path, name, value, bytes); told != -2) return told;
  if (has_no_attributes(path, Links::kFollowed)) return -1;
  return next<ssize_t(const char*, const char*, void*, size_t)>(calls::getxattr)(path, name, value, bytes);
}

ssize_t swale_take_lgetxattr(const char* path, const char* name, void* value, size_t bytes) {
  if (has_no_attributes(path, Links::kStay)) return -1;
  return next<ssize_t(const char*, const char*, void*, size_t)>(calls::lgetxattr)(path, name, value, bytes);
}

ssize_t swale_take_listxattr(const char* path, char* names, size_t bytes) {
  if (has_no_attributes(path, Links::kFollowed)) return -1;
  return next<ssize_t(const char*, char*, size_t)>(calls::listxattr)(path, names, bytes);
}

ssize_t swale_take_llistxattr(const char* path, char* names, size_t bytes) {
  if (has_no_attributes(path, Links::kStay)) return -1;
  return next<ssize_t(const char*, char*, size_t)>(calls::llistxattr)(path, names, bytes);
}

int swale_take_setxattr(const char* path, const char* name, const void* value, size_t bytes, int flags) {
  if (is_unmounted())
    if (const int obeyed = obey_command(path, name, value, bytes); obeyed != -2) return obeyed;
  if (int result = 0; refuse_attribute("setxattr", path, Links::kFollowed, name, &result)) return result;
  return next<int(const char*, const char*, const void*, size_t, int)>(calls::setxattr)(path, name, value,
                                                                                        bytes, flags);
}

int swale_take_lsetxattr(const char* path, const char* name, const void* value, size_t bytes, int flags) {
  if (int result = 0; refuse_attribute("lsetxattr", path, Links::kStay, name, &result)) return result;
  return next<int(const char*, const char*, const void*, size_t, int)>(calls::lsetxattr)(path, name, value,
                                                                                         bytes, flags);
}

int swale_take_removexattr(const char* path, const char* name) {
  if (int result = 0; no_file_unmounted("removexattr", AT_FDCWD, path, Links::kFollowed, &result))
    return result;
  return next<int(const char*, const char*)>(calls::removexattr)(path, name);
}

int swale_take_lremovexattr(const char* path, const char* name) {
  if (int result = 0; no_file_unmounted("lremovexattr", AT_FDCWD, path, Links::kStay, &result)) return result;
  return next<int(const char*, const char*)>(calls::lremovexattr)(path, name);
}

int swale_take_fsetxattr(int fd, const char* name, const void* value, size_t bytes, int flags) {
  ready();
  const Held held(fd);
  if (int result = 0;
      !held && no_descriptor_unmounted(::strncmp(name, "user.", 5) == 0 ? "fsetxattr" : nullptr, fd, &result))
    return result;
  return next<int(int, const char*, const void*, size_t, int)>(calls::fsetxattr)(fd, name, value, bytes,
                                                                                 flags);
}

int swale_take_fremovexattr(int fd, const char* name) {
  ready();
  const Held held(fd);
  if (int result = 0; !held && no_descriptor_unmounted("fremovexattr", fd, &result)) return result;
  return next<int(int, const char*)>(calls::fremovexattr)(fd, name);
}

}  // extern "C"

}  // namespace swale::preload
