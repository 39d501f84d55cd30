// Calls that would ask or change a placeholder, and those that ask for a name of a massive directory: what is
// there (stat, access), and what a subfile refuses. The kernel is asked first about names: it has the
// directory's own files; with light descriptors the server is, before (light.h). A file that was made past
// the kernel is asked about by fstat; before all else it becomes real. If it cannot, that is EBADF.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

#include "preload/light.h"
#include "preload/log_right.h"
#include "preload/massive_engine.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/streams.h"
#include "preload/unmounted.h"

#define SWALE_CALLER __builtin_return_address(0)

namespace swale::preload {
namespace {

constexpr char kNotSynced[] = "a value is durable when closedir has returned, not before";

// The kernel said `result`, and perhaps ENOENT: is it a name of a massive directory?
bool may_be_name(long result) {
  return result != 0 && errno == ENOENT && massive_known.load(std::memory_order_relaxed) != 0;
}

int stat_name(int at, const char* path, struct stat* found, const void* caller) {
  const char* name = nullptr;
  MassiveDirectory* const directory = massive_folder(at, path, &name, caller);
  if (directory != nullptr) return stat_finished(*directory, name, found);
  errno = ENOENT;
  return -1;
}

bool is_descriptor(int at, const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == '\0') && is_subfile(at);
}

bool stat_made(int fd, struct stat* found, int* result) {
  const Held held(fd, Held::kAsItIs);
  return held && held->light.load(std::memory_order_acquire) != 0 && stat_light(*held, found, result);
}

// The server knows the effective ids; access goes by the real ones.
bool may_past_kernel(int at, const char* path, int mode, int flags) {
  constexpr int kFlags = AT_EACCESS | AT_SYMLINK_NOFOLLOW;
  return (flags & ~kFlags) == 0 && (mode & ~(R_OK | W_OK | X_OK)) == 0 &&
         ((flags & AT_EACCESS) != 0 ||
          (raw(SYS_getuid) == raw(SYS_geteuid) && raw(SYS_getgid) == raw(SYS_getegid))) &&
         look_light(at, path, mode, nullptr);
}

int access_name(int at, const char* path, int mode, const void* caller) {
  struct stat found;
  if (stat_name(at, path, &found, caller) != 0) return -1;
  if ((mode & X_OK) == 0) return 0;
  errno = EACCES;
  return -1;
}

void translate(const struct stat& from, struct statx* to) {
  *to = {};
  to->stx_mask = STATX_BASIC_STATS;
  to->stx_blksize = static_cast<uint32_t>(from.st_blksize);
  to->stx_nlink = static_cast<uint32_t>(from.st_nlink);
  to->stx_uid = from.st_uid;
  to->stx_gid = from.st_gid;
  to->stx_mode = static_cast<uint16_t>(from.st_mode);
  to->stx_ino = from.st_ino;
  to->stx_size = static_cast<uint64_t>(from.st_size);
  to->stx_blocks = static_cast<uint64_t>(from.st_blocks);
  const auto time_of = [](const timespec& time) {
    statx_timestamp made = {};
    made.tv_sec = time.tv_sec;
    made.tv_nsec = static_cast<uint32_t>(time.tv_nsec);
    return made;
  };
  to->stx_atime = time_of(from.st_atim);
  to->stx_mtime = time_of(from.st_mtim);
  to->stx_ctime = time_of(from.st_ctim);
  to->stx_dev_major = major(from.st_dev);
  to->stx_dev_minor = minor(from.st_dev);
}

// A name on the tree: the server of the node knows it.
bool seen_past_kernel(int at, const char* path, struct stat* found, int flags = 0) {
  constexpr int kFlags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;  // it follows no link either way
  return (flags & ~kFlags) == 0 && look_light(at, path, F_OK, found);
}

// The server knows no more of it than stat says: not when it was born.
bool seen_past_kernel(int at, const char* path, int flags, unsigned mask, struct statx* found) {
  struct stat simple;
  const int sync = flags & AT_STATX_SYNC_TYPE;
  if ((mask & ~STATX_BASIC_STATS) != 0 || sync == AT_STATX_SYNC_TYPE ||
      !seen_past_kernel(at, path, &simple, flags & ~AT_STATX_SYNC_TYPE))
    return false;
  translate(simple, found);
  return true;
}

// What the kernel says of a descriptor, in a tree that is mounted nowhere.
int restated(int result, int fd, struct stat* found) {
  if (result == 0 && is_unmounted()) restat_unmounted(fd, found);
  return result;
}

// The same of what statx names. True: *result is 0, or -1 and errno.
bool stated(int at, const char* path, int flags, struct stat* found, int* result) {
  if (!is_unmounted()) return false;
  if (!names_itself(path)) return stat_unmounted(at, path, flags, found, result);
  if ((flags & AT_EMPTY_PATH) == 0 || next<int(int, struct stat*)>(calls::fstat)(at, found) != 0)
    return false;
  const ino_t before = found->st_ino;
  const mode_t mode = found->st_mode;
  restat_unmounted(at, found);
  *result = 0;
  return found->st_ino != before || found->st_mode != mode;
}

int also_by_name(int result, int at, const char* path, struct stat* found, const void* caller) {
  return may_be_name(result) ? stat_name(at, path, found, caller) : result;
}

}  // namespace

extern "C" {

int swale_take_fstat(int fd, struct stat* found) {
  if (is_subfile(fd)) return stat_subfile(fd, found);
  if (int result = 0; stat_made(fd, found, &result)) return result;
  return restated(next<int(int, struct stat*)>(calls::fstat)(fd, found), fd, found);
}

int swale_take_fxstat(int version, int fd, struct stat* found) {
  if (is_subfile(fd)) return stat_subfile(fd, found);
  if (int result = 0; stat_made(fd, found, &result)) return result;
  return restated(next<int(int, int, struct stat*)>(calls::__fxstat)(version, fd, found), fd, found);
}

int swale_take_stat(const char* path, struct stat* found) {
  if (int result = 0; stat_unmounted(AT_FDCWD, path, 0, found, &result))
    return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
  if (seen_past_kernel(AT_FDCWD, path, found)) return 0;
  const int result = next<int(const char*, struct stat*)>(calls::stat)(path, found);
  return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
}

int swale_take_lstat(const char* path, struct stat* found) {
  if (int result = 0; stat_unmounted(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, found, &result))
    return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
  if (seen_past_kernel(AT_FDCWD, path, found)) return 0;
  const int result = next<int(const char*, struct stat*)>(calls::lstat)(path, found);
  return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
}

int swale_take_xstat(int version, const char* path, struct stat* found) {
  if (int result = 0; stat_unmounted(AT_FDCWD, path, 0, found, &result))
    return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
  if (seen_past_kernel(AT_FDCWD, path, found)) return 0;
  const int result = next<int(int, const char*, struct stat*)>(calls::__xstat)(version, path, found);
  return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
}

int swale_take_lxstat(int version, const char* path, struct stat* found) {
  if (int result = 0; stat_unmounted(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, found, &result))
    return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
  if (seen_past_kernel(AT_FDCWD, path, found)) return 0;
  const int result = next<int(int, const char*, struct stat*)>(calls::__lxstat)(version, path, found);
  return also_by_name(result, AT_FDCWD, path, found, SWALE_CALLER);
}

int swale_take_fstatat(int at, const char* path, struct stat* found, int flags) {
  if (is_descriptor(at, path, flags)) return stat_subfile(at, found);
  if (stays_light(at)) return -1;
  if (int result = 0; stat_unmounted(at, path, flags, found, &result))
    return also_by_name(result, at, path, found, SWALE_CALLER);
  if (seen_past_kernel(at, path, found, flags)) return 0;
  int result = next<int(int, const char*, struct stat*, int)>(calls::fstatat)(at, path, found, flags);
  if (names_itself(path)) result = restated(result, at, found);
  return also_by_name(result, at, path, found, SWALE_CALLER);
}

int swale_take_fxstatat(int version, int at, const char* path, struct stat* found, int flags) {
  if (is_descriptor(at, path, flags)) return stat_subfile(at, found);
  if (stays_light(at)) return -1;
  if (int result = 0; stat_unmounted(at, path, flags, found, &result))
    return also_by_name(result, at, path, found, SWALE_CALLER);
  if (seen_past_kernel(at, path, found, flags)) return 0;
  int result =
      next<int(int, int, const char*, struct stat*, int)>(calls::__fxstatat)(version, at, path, found, flags);
  if (names_itself(path)) result = restated(result, at, found);
  return also_by_name(result, at, path, found, SWALE_CALLER);
}

int swale_take_statx(int at, const char* path, int flags, unsigned mask, struct statx* found) {
  struct stat simple;
  if (is_descriptor(at, path, flags)) {
    if (stat_subfile(at, &simple) != 0) return -1;
    translate(simple, found);
    return 0;
  }
  if (stays_light(at)) return -1;
  if (int result = 0; stated(at, path, flags, &simple, &result)) {
    if (may_be_name(result)) result = stat_name(at, path, &simple, SWALE_CALLER);
    if (result == 0) translate(simple, found);
    return result;
  }
  if (seen_past_kernel(at, path, flags, mask, found)) return 0;
  const int result =
      next<int(int, const char*, int, unsigned, struct statx*)>(calls::statx)(at, path, flags, mask, found);
  if (!may_be_name(result)) return result;
  if (stat_name(at, path, &simple, SWALE_CALLER) != 0) return -1;
  translate(simple, found);
  return 0;
}

int swale_take_access(const char* path, int mode) {
  if (int result = 0; access_unmounted(AT_FDCWD, path, mode, 0, &result))
    return may_be_name(result) ? access_name(AT_FDCWD, path, mode, SWALE_CALLER) : result;
  if (may_past_kernel(AT_FDCWD, path, mode, 0)) return 0;
  const int result = next<int(const char*, int)>(calls::access)(path, mode);
  return may_be_name(result) ? access_name(AT_FDCWD, path, mode, SWALE_CALLER) : result;
}

int swale_take_faccessat(int at, const char* path, int mode, int flags) {
  if (names_itself(path) && stays_light(at)) return -1;
  if (int result = 0; access_unmounted(at, path, mode, flags, &result))
    return may_be_name(result) ? access_name(at, path, mode, SWALE_CALLER) : result;
  if (may_past_kernel(at, path, mode, flags)) return 0;
  const int result = next<int(int, const char*, int, int)>(calls::faccessat)(at, path, mode, flags);
  return may_be_name(result) ? access_name(at, path, mode, SWALE_CALLER) : result;
}

int swale_take_fstatfs(int fd, struct statfs* found) {
  if (const char* const folder = folder_of_subfile(fd)) return ::statfs(folder, found);
  if (stays_light(fd)) return -1;
  return next<int(int, struct statfs*)>(calls::fstatfs)(fd, found);
}

int swale_take_fstatvfs(int fd, struct statvfs* found) {
  if (const char* const folder = folder_of_subfile(fd)) return ::statvfs(folder, found);
  if (stays_light(fd)) return -1;
  return next<int(int, struct statvfs*)>(calls::fstatvfs)(fd, found);
}

int swale_take_fsync(int fd) {
  if (is_subfile(fd)) return refuse_subfile(fd, "fsync", EINVAL, kNotSynced);
  if (stays_light(fd)) return -1;
  if (int result = 0; sync_unmounted(fd, &result)) return result;
  return next<int(int)>(calls::fsync)(fd);
}

int swale_take_fdatasync(int fd) {
  if (is_subfile(fd)) return refuse_subfile(fd, "fdatasync", EINVAL, kNotSynced);
  if (stays_light(fd)) return -1;
  if (int result = 0; sync_unmounted(fd, &result)) return result;
  return next<int(int)>(calls::fdatasync)(fd);
}

int swale_take_ftruncate(int fd, off_t bytes) {
  if (is_subfile(fd)) return refuse_subfile(fd, "ftruncate", EPERM, kAppendedOnly);
  if (stays_light(fd)) return -1;
  if (int result = 0; ftruncate_unmounted(fd, bytes, &result)) return result;
  return next<int(int, off_t)>(calls::ftruncate)(fd, bytes);
}

int swale_take_fchmod(int fd, mode_t mode) {
  if (is_subfile(fd)) return refuse_subfile(fd, "fchmod", EPERM, kAppendedOnly);
  if (stays_light(fd)) return -1;
  if (int result = 0; fchmod_unmounted(fd, mode, &result)) return result;
  return next<int(int, mode_t)>(calls::fchmod)(fd, mode);
}

int swale_take_fchown(int fd, uid_t user, gid_t group) {
  if (is_subfile(fd)) return refuse_subfile(fd, "fchown", EPERM, kAppendedOnly);
  if (stays_light(fd)) return -1;
  if (int result = 0; fchown_unmounted(fd, user, group, &result)) return result;
  return next<int(int, uid_t, gid_t)>(calls::fchown)(fd, user, group);
}

int swale_take_futimens(int fd, const timespec* times) {
  if (is_subfile(fd)) return refuse_subfile(fd, "futimens", EPERM, kAppendedOnly);
  if (stays_light(fd)) return -1;
  if (int result = 0; utimens_unmounted(fd, nullptr, times, Links::kStay, &result)) return result;
  return next<int(int, const timespec*)>(calls::futimens)(fd, times);
}

int swale_take_futimes(int fd, const timeval* times) {
  if (is_subfile(fd)) return refuse_subfile(fd, "futimes", EPERM, kAppendedOnly);
  if (stays_light(fd)) return -1;
  timespec as[2];
  if (int result = 0; utimens_unmounted(fd, nullptr, times_of(times, as), Links::kStay, &result))
    return result;
  return next<int(int, const timeval*)>(calls::futimes)(fd, times);
}

// A stream of the C library writes inside itself, to the placeholder.
FILE* swale_take_fdopen(int fd, const char* mode) {
  if (is_subfile(fd)) {
    refuse_subfile(fd, "fdopen", EINVAL, "use fopen, or write to the descriptor");
    return nullptr;
  }
  ready();
  if (stays_light(fd)) return nullptr;
  leave_to_others(fd);
  FILE* const stream = next<FILE*(int, const char*)>(calls::fdopen)(fd, mode);
  enlarge_writer(stream, mode);
  return stream;
}

FILE* swale_take_freopen(const char* path, const char* mode, FILE* stream) {
  const char* name = nullptr;
  if (path != nullptr && massive_known.load(std::memory_order_relaxed) != 0 && mode[0] != 'r' &&
      massive_folder(AT_FDCWD, path, &name, SWALE_CALLER) != nullptr) {
    refuse_massive("freopen", path, EOPNOTSUPP, "use fclose and fopen");
    return nullptr;
  }
  if (FILE* made = nullptr; freopen_unmounted(path, mode, stream, &made)) return made;
  before_reopening(path);
  FILE* const made = next<FILE*(const char*, const char*, FILE*)>(calls::freopen)(path, mode, stream);
  enlarge_writer(made, mode);
  return made;
}

}  // extern "C"

}  // namespace swale::preload
