// Calls of names, and of descriptors that have a name, in a tree that is mounted nowhere (unmounted.h).
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/messages.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

using fs::UnmountedAnswer;
using fs::UnmountedCall;
using fs::UnmountedRequest;

constexpr int64_t kSecondNanos = 1'000'000'000;
constexpr long kAskForLockNanos = 500'000, kAskForLockNanosMax = 20'000'000;

bool say(int failed, int* result) {
  if (failed != 0) errno = failed;
  *result = failed == 0 ? 0 : -1;
  return true;
}

UnmountedRequest request_of(UnmountedCall call) {
  UnmountedRequest request;
  request.call = call;
  return request;
}

// The server's answer is the call's.
bool ask(const UnmountedRequest& request, int* result) {
  UnmountedAnswer answer;
  return say(ask_unmounted(request, &answer), result);
}

bool is_empty(const char* path) { return path == nullptr || *path == '\0'; }

Links links_of(int flags) { return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Links::kStay : Links::kFollowed; }

// A descriptor of a file of the tree: what its file is asked by. False: it is none.
bool file_of(int fd, UnmountedRequest* request) {
  struct stat found;
  if (next<int(int, struct stat*)>(calls::fstat)(fd, &found) != 0 || !S_ISREG(found.st_mode)) return false;
  UnmountedRequest look = request_of(UnmountedCall::kLook);
  if ((found.st_mode & 07777) == fs::kStandInMode)
    look.stand_in = found.st_ino;
  else if (!directory_unmounted(fd, &look) || look.path_bytes == 0)
    return false;
  UnmountedAnswer answer;
  if (ask_unmounted(look, &answer) != 0 || answer.kind != S_IFREG) return false;
  request->stand_in = look.stand_in;
  request->path_bytes = look.path_bytes;
  ::memcpy(request->paths, look.paths, look.path_bytes);
  return true;
}

bool by_descriptor(int fd, UnmountedRequest* request) { return file_of_unmounted(fd, request); }

bool change(int at, const char* path, Links links, UnmountedRequest* request, int* result) {
  request->call = UnmountedCall::kChange;
  const bool is_ours =
      is_empty(path) ? by_descriptor(at, request) : place_unmounted(at, path, links, request);
  return is_ours && ask(*request, result);
}

// A file without a name, in a directory of the tree.
bool is_nameless(int at, const char* path) {
  const long folder = raw(SYS_openat, at, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  UnmountedRequest request;
  const bool below = directory_unmounted(static_cast<int>(folder), &request);
  raw(SYS_close, folder);
  return below;
}

}  // namespace

bool file_of_unmounted(int fd, UnmountedRequest* request) noexcept {
  const int kept = errno;
  const bool is_ours = file_of(fd, request);
  errno = kept;
  return is_ours;
}

bool open_unmounted(int at, const char* path, int flags, mode_t mode, int* fd) noexcept {
  if (!is_unmounted() || is_empty(path)) return false;
  if ((flags & O_TMPFILE) == O_TMPFILE)
    return is_nameless(at, path) && refuse_unmounted("open with O_TMPFILE", path, EOPNOTSUPP, fd);
  UnmountedRequest request = request_of(UnmountedCall::kOpen);
  const bool stays = (flags & O_NOFOLLOW) != 0 || ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0);
  const Links links = stays ? Links::kStay : Links::kFollowed;
  if (!place_unmounted(at, path, links, &request)) return false;
  UnmountedAnswer answer;
  if ((flags & O_PATH) != 0) {
    const bool is_file = is_file_unmounted(at, path, links, &answer);
    return is_file && refuse_unmounted("open with O_PATH", path, EOPNOTSUPP, fd);
  }
  if ((flags & O_APPEND) != 0 && (flags & O_ACCMODE) == O_RDWR && is_on_nodes_unmounted())
    return refuse_unmounted("open with O_APPEND and O_RDWR, on several nodes,", path, EOPNOTSUPP, fd);
  request.flags = static_cast<uint32_t>(flags & ~(O_CLOEXEC | O_DIRECT));
  if ((flags & O_CREAT) != 0) {
    request.mode = mode;
    request.umask = umask_unmounted();
  }
  int got = -1;
  const int failed = ask_unmounted(request, &answer, &got);
  if (failed == EOPNOTSUPP) return refuse_unmounted("open with these flags", path, EOPNOTSUPP, fd);
  if (failed != 0) {
    errno = failed;
    *fd = -1;
    return true;
  }
  if (answer.kind != S_IFREG) return false;
  if (got >= 0 && (flags & O_CLOEXEC) == 0) raw(SYS_fcntl, got, F_SETFD, 0L);
  if (got < 0) errno = EMFILE;  // no number was left for it
  *fd = got;
  return true;
}

bool stat_unmounted(int at, const char* path, int flags, struct stat* found, int* result) noexcept {
  if (!is_unmounted() || is_empty(path)) return false;
  UnmountedRequest request = request_of(UnmountedCall::kLook);
  if (!place_unmounted(at, path, links_of(flags), &request)) return false;
  UnmountedAnswer answer;
  const int failed = ask_unmounted(request, &answer);
  if (failed == 0 && answer.kind != S_IFREG) return false;
  if (failed == 0) translate_unmounted(answer.stat, found);
  return say(failed, result);
}

bool access_unmounted(int at, const char* path, int mode, int flags, int* result) noexcept {
  if (!is_unmounted() || is_empty(path)) return false;
  UnmountedRequest request = request_of(UnmountedCall::kLook);
  request.mode = static_cast<uint32_t>(mode);
  if (!place_unmounted(at, path, links_of(flags), &request)) return false;
  UnmountedAnswer answer;
  const int failed = ask_unmounted(request, &answer);
  return (failed != 0 || answer.kind == S_IFREG) && say(failed, result);
}

bool unlink_unmounted(int at, const char* path, int flags, int* result) noexcept {
  if (!is_unmounted()) return false;
  const bool directory = (flags & AT_REMOVEDIR) != 0;
  UnmountedRequest request = request_of(directory ? UnmountedCall::kRemoveDirectory : UnmountedCall::kUnlink);
  return place_unmounted(at, path, Links::kStay, &request) && ask(request, result);
}

bool remove_unmounted(const char* path, int* result) noexcept {
  if (!unlink_unmounted(AT_FDCWD, path, 0, result)) return false;
  if (*result != 0 && errno == EISDIR) return unlink_unmounted(AT_FDCWD, path, AT_REMOVEDIR, result);
  return true;
}

bool mkdir_unmounted(int at, const char* path, mode_t mode, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request = request_of(UnmountedCall::kMakeDirectory);
  request.mode = mode;
  request.umask = umask_unmounted();
  return place_unmounted(at, path, Links::kStay, &request) && ask(request, result);
}

bool symlink_unmounted(const char* target, int at, const char* path, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request = request_of(UnmountedCall::kMakeLink);
  const size_t bytes = target == nullptr ? 0 : ::strnlen(target, fs::kUnmountedPathMax);
  if (!place_unmounted(at, path, Links::kStay, &request)) return false;
  if (bytes == fs::kUnmountedPathMax) return say(ENAMETOOLONG, result);
  request.other_bytes = static_cast<uint32_t>(bytes);
  if (bytes > 0) ::memcpy(request.paths + request.path_bytes, target, bytes);
  return ask(request, result);
}

// Between the tree and what is outside nothing can be renamed, as between file systems.
bool rename_unmounted(int from_at, const char* from, int to_at, const char* to, unsigned flags,
                      int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request = request_of(UnmountedCall::kRename);
  request.flags = flags;
  const bool from_below = place_unmounted(from_at, from, Links::kStay, &request);
  const bool to_below = other_place_unmounted(to_at, to, &request);
  if (!from_below && !to_below) return false;
  if (from_below && to_below) return ask(request, result);
  struct stat there;  // what is not there is no reason for EXDEV
  const bool is_there =
      from_below ? !stat_unmounted(from_at, from, AT_SYMLINK_NOFOLLOW, &there, result) || *result == 0
                 : next<int(int, const char*, struct stat*, int)>(calls::fstatat)(from_at, from, &there,
                                                                                  AT_SYMLINK_NOFOLLOW) == 0;
  return say(is_there ? EXDEV : errno, result);
}

bool truncate_unmounted(const char* path, off_t bytes, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request = request_of(UnmountedCall::kTruncate);
  if (!place_unmounted(AT_FDCWD, path, Links::kFollowed, &request)) return false;
  if (bytes < 0) return say(EINVAL, result);
  request.size = static_cast<uint64_t>(bytes);
  return ask(request, result);
}

bool chmod_unmounted(int at, const char* path, mode_t mode, Links links, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request;
  request.what = fs::kChangesMode;
  request.mode = mode;
  return change(at, path, links, &request, result);
}

bool chown_unmounted(int at, const char* path, uid_t user, gid_t group, Links links, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request;
  request.what = (user != ~uid_t{0} ? fs::kChangesUser : 0u) | (group != ~gid_t{0} ? fs::kChangesGroup : 0u);
  request.user = user;
  request.group = group;
  return change(at, path, links, &request, result);
}

bool utimens_unmounted(int at, const char* path, const timespec* times, Links links, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request;
  const auto put = [&](const timespec& time, uint32_t set, uint32_t now, int64_t* nanos) {
    if (time.tv_nsec == UTIME_OMIT) return true;
    request.what |= time.tv_nsec == UTIME_NOW ? now : set;
    *nanos = time.tv_sec * kSecondNanos + time.tv_nsec;
    return time.tv_nsec == UTIME_NOW || (time.tv_nsec >= 0 && time.tv_nsec < kSecondNanos);
  };
  bool valid = true;
  if (times == nullptr) {
    request.what = fs::kAccessedNow | fs::kModifiedNow;
  } else {
    valid = put(times[0], fs::kChangesAccessed, fs::kAccessedNow, &request.accessed_ns) &&
            put(times[1], fs::kChangesModified, fs::kModifiedNow, &request.modified_ns);
  }
  if (valid) return change(at, path, links, &request, result);
  return false;  // the kernel says what is wrong with them
}

bool fchmod_unmounted(int fd, mode_t mode, int* result) noexcept {
  return chmod_unmounted(fd, nullptr, mode, Links::kStay, result);
}

bool fchown_unmounted(int fd, uid_t user, gid_t group, int* result) noexcept {
  return chown_unmounted(fd, nullptr, user, group, Links::kStay, result);
}

bool sync_unmounted(int fd, int* result) noexcept {
  if (!is_unmounted()) return false;
  UnmountedRequest request = request_of(UnmountedCall::kSync);
  return by_descriptor(fd, &request) && ask(request, result);
}

// The stand-in has the flags of its open, also in other processes. The kernel has made it durable there: that
// is a file beside the tree.
ssize_t settle_write_unmounted(int fd, ssize_t bytes, off_t offset, bool durable) noexcept {
  const int kept = errno;
  const long flags = raw(SYS_fcntl, fd, F_GETFL, 0L);
  struct stat found;
  if (flags < 0 || (!durable && (flags & O_DSYNC) == 0) ||
      next<int(int, struct stat*)>(calls::fstat)(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
      (found.st_mode & 07777) != fs::kStandInMode) {
    errno = kept;
    return bytes;
  }
  UnmountedRequest request = request_of(UnmountedCall::kSync);
  request.stand_in = found.st_ino;
  if (offset < 0) offset = raw(SYS_lseek, fd, 0L, SEEK_CUR) - bytes;
  request.flags = static_cast<uint32_t>(flags & O_APPEND);
  request.offset = static_cast<uint64_t>(offset);
  request.size = static_cast<uint64_t>(bytes);
  UnmountedAnswer answer;
  const int failed = ask_unmounted(request, &answer);
  errno = failed == 0 || failed == ESTALE ? kept : failed;  // ESTALE: it is no stand-in
  return failed == 0 || failed == ESTALE ? bytes : -1;
}

bool ftruncate_unmounted(int fd, off_t bytes, int* result) noexcept {
  if (!is_on_nodes_unmounted() || bytes < 0) return false;
  UnmountedRequest request = request_of(UnmountedCall::kTruncate);
  request.size = static_cast<uint64_t>(bytes);
  if (!by_descriptor(fd, &request)) return false;
  const long flags = raw(SYS_fcntl, fd, F_GETFL, 0L);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) return say(EINVAL, result);
  return ask(request, result);
}

// Before the node's kernel, as the root of the file knows those of all nodes; an end after it. Who waits asks
// again and again: a signal ends that.
bool lock_unmounted(int fd, int command, struct flock* lock, int (*lock_here)(int, int, struct flock*),
                    int* result) noexcept {
  UnmountedRequest request;
  UnmountedAnswer answer;
  struct stat found;
  if (!is_on_nodes_unmounted() || lock == nullptr || !by_descriptor(fd, &request)) return false;
  off_t begin = lock->l_start, end = 0;
  if (lock->l_whence == SEEK_CUR) begin += raw(SYS_lseek, fd, 0L, SEEK_CUR);
  if (next<int(int, struct stat*)>(calls::fstat)(fd, &found) != 0) return say(errno, result);
  if (lock->l_whence == SEEK_END) begin += found.st_size;
  if (lock->l_len < 0) {
    end = begin;
    begin += lock->l_len;
  } else if (lock->l_len > 0) {
    end = begin + lock->l_len;
  }
  if (begin < 0 || end < 0) return say(EINVAL, result);
  const bool finds = command == F_GETLK, unlocks = lock->l_type == F_UNLCK && !finds;
  request.call = finds ? UnmountedCall::kFindLock : UnmountedCall::kLock;
  request.what = static_cast<uint32_t>(lock->l_type);
  request.size = static_cast<uint64_t>(begin);
  request.modified_ns = end;
  request.accessed_ns = static_cast<int64_t>(found.st_ino);
  if (unlocks && lock_here(fd, command, lock) != 0) return say(errno, result);
  timespec pause = {0, kAskForLockNanos};
  int failed = ask_unmounted(request, &answer);
  for (; failed == EAGAIN && command == F_SETLKW; failed = ask_unmounted(request, &answer)) {
    if (raw(SYS_nanosleep, &pause, 0L) != 0) return say(EINTR, result);
    if (pause.tv_nsec < kAskForLockNanosMax) pause.tv_nsec *= 2;
  }
  if (failed == ENOLCK && !unlocks)
    tell("a lock of a file that is read on the backing is refused, in a tree that is mounted nowhere");
  if (failed != 0 || unlocks) return say(unlocks && failed == ENOLCK ? 0 : failed, result);
  if (!finds) {
    *result = lock_here(fd, command, lock);
    return true;
  }
  lock->l_type = static_cast<short>(answer.there);
  if (answer.there == F_UNLCK) return say(0, result);
  lock->l_whence = SEEK_SET;
  lock->l_start = static_cast<off_t>(answer.stat.size);
  lock->l_len = static_cast<off_t>(answer.stat.blocks);
  lock->l_pid = static_cast<pid_t>(answer.stat.inode);
  return say(0, result);
}

bool no_lock_unmounted(const char* call, int fd, bool unlocks, int* result) noexcept {
  UnmountedRequest request;
  if (!is_on_nodes_unmounted() || unlocks || !by_descriptor(fd, &request)) return false;
  tell("%s of a file is refused: no other node would know of the lock, in a tree that is mounted nowhere",
       call);
  return say(ENOLCK, result);
}

bool no_append_unmounted(int fd, int flags, int* result) noexcept {
  UnmountedRequest request;
  if (!is_on_nodes_unmounted()) return false;
  const long now = raw(SYS_fcntl, fd, F_GETFL, 0L);
  if (now < 0 || ((now ^ flags) & O_APPEND) == 0 || (now & O_ACCMODE) == O_RDONLY) return false;
  return by_descriptor(fd, &request) &&
         refuse_unmounted("a change of O_APPEND", "an open file", EOPNOTSUPP, result);
}

bool no_entry_unmounted(const char* call, int at, const char* path, int error, int* result) noexcept {
  if (!is_unmounted() || is_empty(path)) return false;
  UnmountedRequest request;
  return place_unmounted(at, path, Links::kStay, &request) && refuse_unmounted(call, path, error, result);
}

void warn_unmounted(long number, long first, long second) noexcept {
  UnmountedRequest request;
  switch (number) {
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
    case SYS_unlink:
    case SYS_rename:
    case SYS_rmdir:
    case SYS_mkdir:
#endif
    case SYS_truncate:
      second = first;
      first = AT_FDCWD;
      break;
    case SYS_openat:
    case SYS_openat2:
    case SYS_unlinkat:
    case SYS_renameat2:
    case SYS_mkdirat:
      break;
    default:
      return;
  }
  const auto* const path = reinterpret_cast<const char*>(second);
  if (!place_unmounted(static_cast<int>(first), path, Links::kStay, &request)) return;
  tell("syscall(%ld) of %s works on the backing, beside the tree, which is mounted nowhere", number, path);
}

// Where the server keeps what was synced on the node, this brings all.
void bring_unmounted(const char* path) noexcept {
  UnmountedAnswer answer;
  if (!is_unmounted() || is_empty(path) || ::strchr(path, '/') == nullptr) return;
  const int kept = errno;
  UnmountedRequest request = request_of(UnmountedCall::kLook);
  request.mode = X_OK;
  if (place_unmounted(AT_FDCWD, path, Links::kFollowed, &request) && ask_unmounted(request, &answer) == 0 &&
      answer.kind == S_IFREG && answer.there == 0)
    static_cast<void>(ask_unmounted(request_of(UnmountedCall::kSyncAll), &answer));
  errno = kept;
}

}  // namespace swale::preload
