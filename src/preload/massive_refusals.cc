// Calls that a massive directory refuses: what would change its subfiles by name, and what would make another
// entry in it. Each refusal is logged.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "preload/light.h"
#include "preload/massive.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

constexpr char kValuesOnly[] = "it has values only, no other entries; make this one in another directory";

// True, with errno set.
bool refused(const char* call, int at, const char* path, const void* caller,
             const char* why = kAppendedOnly) {
  const char* name = nullptr;
  if (is_subfile(at) && names_itself(path)) return refuse_subfile(at, call, EPERM, why) != 0;
  if (massive_known.load(std::memory_order_relaxed) == 0 || path == nullptr) return false;
  char without_end[PATH_MAX];  // mkdir("DIR/name/") makes DIR/name
  size_t bytes = ::strnlen(path, sizeof without_end);
  if (bytes > 1 && bytes < sizeof without_end && path[bytes - 1] == '/') {
    while (bytes > 1 && path[bytes - 1] == '/') --bytes;
    memcpy(without_end, path, bytes);
    without_end[bytes] = '\0';
    path = without_end;
  }
  if (massive_folder(at, path, &name, caller) == nullptr) return false;
  refuse_massive(call, path, EPERM, why);
  return true;
}

bool entry_refused(const char* call, int at, const char* path, const void* caller) {
  return refused(call, at, path, caller, kValuesOnly);
}

bool link_refused(const char* call, int from_at, const char* from, int to_at, const char* to,
                  const void* caller) {
  return refused(call, from_at, from, caller) || entry_refused(call, to_at, to, caller);
}

bool rename_refused(const char* call, int from_at, const char* from, int to_at, const char* to,
                    const void* caller) {
  const char* name = nullptr;
  if (massive_known.load(std::memory_order_relaxed) == 0) return false;
  const MassiveDirectory* const source = massive_folder(from_at, from, &name, caller);
  const MassiveDirectory* const target = massive_folder(to_at, to, &name, caller);
  if (source == nullptr && target == nullptr) {
    swale_before_names();
    return false;
  }
  // Within one directory it is a rename of a subfile.
  if (source == target)
    refuse_massive(call, from, EPERM, kAppendedOnly);
  else
    refuse_massive(call, source != nullptr ? from : to, EXDEV, "values have no other place");
  return true;
}

Links links_of(int flags) { return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Links::kStay : Links::kFollowed; }

const timespec* times_of(const utimbuf* times, timespec out[2]) {
  if (times == nullptr) return nullptr;
  out[0] = {times->actime, 0};
  out[1] = {times->modtime, 0};
  return out;
}

// As the mount: a file has one name.
bool link_unmounted(const char* call, int from_at, const char* from, int to_at, const char* to, int* result) {
  return no_entry_unmounted(call, from_at, from, EPERM, result) ||
         no_entry_unmounted(call, to_at, to, EPERM, result);
}

}  // namespace

bool refuse_made_name(const char* call, const char* path, const void* caller) noexcept {
  return entry_refused(call, AT_FDCWD, path, caller);
}

#define SWALE_CALLER __builtin_return_address(0)

extern "C" {

int swale_take_rename(const char* from, const char* to) {
  if (rename_refused("rename", AT_FDCWD, from, AT_FDCWD, to, SWALE_CALLER)) return -1;
  if (int result = 0; rename_unmounted(AT_FDCWD, from, AT_FDCWD, to, 0, &result)) return result;
  return next<int(const char*, const char*)>(calls::rename)(from, to);
}

int swale_take_renameat(int from_at, const char* from, int to_at, const char* to) {
  if (rename_refused("renameat", from_at, from, to_at, to, SWALE_CALLER)) return -1;
  if (int result = 0; rename_unmounted(from_at, from, to_at, to, 0, &result)) return result;
  return next<int(int, const char*, int, const char*)>(calls::renameat)(from_at, from, to_at, to);
}

int swale_take_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  if (rename_refused("renameat2", from_at, from, to_at, to, SWALE_CALLER)) return -1;
  if (int result = 0; rename_unmounted(from_at, from, to_at, to, flags, &result)) return result;
  return next<int(int, const char*, int, const char*, unsigned)>(calls::renameat2)(from_at, from, to_at, to,
                                                                                   flags);
}

int swale_take_unlink(const char* path) {
  if (refused("unlink", AT_FDCWD, path, SWALE_CALLER)) return -1;
  swale_before_names();
  if (int result = 0; unlink_unmounted(AT_FDCWD, path, 0, &result)) return result;
  return next<int(const char*)>(calls::unlink)(path);
}

int swale_take_unlinkat(int at, const char* path, int flags) {
  if ((flags & AT_REMOVEDIR) == 0 && refused("unlinkat", at, path, SWALE_CALLER)) return -1;
  swale_before_names();
  if (int result = 0; unlink_unmounted(at, path, flags, &result)) return result;
  return next<int(int, const char*, int)>(calls::unlinkat)(at, path, flags);
}

int swale_take_rmdir(const char* path) {
  if (int result = 0; unlink_unmounted(AT_FDCWD, path, AT_REMOVEDIR, &result)) return result;
  swale_before_names();
  return next<int(const char*)>(calls::rmdir)(path);
}

int swale_take_remove(const char* path) {
  if (refused("remove", AT_FDCWD, path, SWALE_CALLER)) return -1;
  swale_before_names();
  if (int result = 0; remove_unmounted(path, &result)) return result;
  return next<int(const char*)>(calls::remove)(path);
}

int swale_take_chmod(const char* path, mode_t mode) {
  if (refused("chmod", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; chmod_unmounted(AT_FDCWD, path, mode, Links::kFollowed, &result)) return result;
  return next<int(const char*, mode_t)>(calls::chmod)(path, mode);
}

int swale_take_fchmodat(int at, const char* path, mode_t mode, int flags) {
  if (refused("fchmodat", at, path, SWALE_CALLER) || (names_itself(path) && stays_light(at))) return -1;
  if (int result = 0; chmod_unmounted(at, path, mode, links_of(flags), &result)) return result;
  return next<int(int, const char*, mode_t, int)>(calls::fchmodat)(at, path, mode, flags);
}

int swale_take_chown(const char* path, uid_t user, gid_t group) {
  if (refused("chown", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; chown_unmounted(AT_FDCWD, path, user, group, Links::kFollowed, &result)) return result;
  return next<int(const char*, uid_t, gid_t)>(calls::chown)(path, user, group);
}

int swale_take_lchown(const char* path, uid_t user, gid_t group) {
  if (refused("lchown", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; chown_unmounted(AT_FDCWD, path, user, group, Links::kStay, &result)) return result;
  return next<int(const char*, uid_t, gid_t)>(calls::lchown)(path, user, group);
}

int swale_take_fchownat(int at, const char* path, uid_t user, gid_t group, int flags) {
  if (refused("fchownat", at, path, SWALE_CALLER) || (names_itself(path) && stays_light(at))) return -1;
  if (int result = 0; chown_unmounted(at, path, user, group, links_of(flags), &result)) return result;
  return next<int(int, const char*, uid_t, gid_t, int)>(calls::fchownat)(at, path, user, group, flags);
}

int swale_take_utime(const char* path, const utimbuf* times) {
  if (refused("utime", AT_FDCWD, path, SWALE_CALLER)) return -1;
  timespec as[2];
  if (int result = 0; utimens_unmounted(AT_FDCWD, path, times_of(times, as), Links::kFollowed, &result))
    return result;
  return next<int(const char*, const utimbuf*)>(calls::utime)(path, times);
}

int swale_take_utimes(const char* path, const timeval* times) {
  if (refused("utimes", AT_FDCWD, path, SWALE_CALLER)) return -1;
  timespec as[2];
  if (int result = 0; utimens_unmounted(AT_FDCWD, path, times_of(times, as), Links::kFollowed, &result))
    return result;
  return next<int(const char*, const timeval*)>(calls::utimes)(path, times);
}

int swale_take_utimensat(int at, const char* path, const timespec* times, int flags) {
  if (refused("utimensat", at, path, SWALE_CALLER) || (names_itself(path) && stays_light(at))) return -1;
  if (int result = 0; utimens_unmounted(at, path, times, links_of(flags), &result)) return result;
  return next<int(int, const char*, const timespec*, int)>(calls::utimensat)(at, path, times, flags);
}

int swale_take_truncate(const char* path, off_t bytes) {
  if (refused("truncate", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; truncate_unmounted(path, bytes, &result)) return result;
  return next<int(const char*, off_t)>(calls::truncate)(path, bytes);
}

int swale_take_lchmod(const char* path, mode_t mode) {
  if (refused("lchmod", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; chmod_unmounted(AT_FDCWD, path, mode, Links::kStay, &result)) return result;
  return next<int(const char*, mode_t)>(calls::lchmod)(path, mode);
}

int swale_take_lutimes(const char* path, const timeval* times) {
  if (refused("lutimes", AT_FDCWD, path, SWALE_CALLER)) return -1;
  timespec as[2];
  if (int result = 0; utimens_unmounted(AT_FDCWD, path, times_of(times, as), Links::kStay, &result))
    return result;
  return next<int(const char*, const timeval*)>(calls::lutimes)(path, times);
}

int swale_take_futimesat(int at, const char* path, const timeval* times) {
  if (refused("futimesat", at, path, SWALE_CALLER) || (names_itself(path) && stays_light(at))) return -1;
  timespec as[2];
  if (int result = 0; utimens_unmounted(at, path, times_of(times, as), Links::kFollowed, &result))
    return result;
  return next<int(int, const char*, const timeval*)>(calls::futimesat)(at, path, times);
}

int swale_take_link(const char* from, const char* to) {
  if (link_refused("link", AT_FDCWD, from, AT_FDCWD, to, SWALE_CALLER)) return -1;
  if (int result = 0; link_unmounted("link", AT_FDCWD, from, AT_FDCWD, to, &result)) return result;
  return next<int(const char*, const char*)>(calls::link)(from, to);
}

int swale_take_linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  if (link_refused("linkat", from_at, from, to_at, to, SWALE_CALLER)) return -1;
  if (names_itself(from) && stays_light(from_at)) return -1;
  if (int result = 0; link_unmounted("linkat", from_at, from, to_at, to, &result)) return result;
  return next<int(int, const char*, int, const char*, int)>(calls::linkat)(from_at, from, to_at, to, flags);
}

int swale_take_symlink(const char* target, const char* path) {
  if (entry_refused("symlink", AT_FDCWD, path, SWALE_CALLER)) return -1;
  swale_before_names();
  if (int result = 0; symlink_unmounted(target, AT_FDCWD, path, &result)) return result;
  return next<int(const char*, const char*)>(calls::symlink)(target, path);
}

int swale_take_symlinkat(const char* target, int at, const char* path) {
  if (entry_refused("symlinkat", at, path, SWALE_CALLER)) return -1;
  swale_before_names();
  if (int result = 0; symlink_unmounted(target, at, path, &result)) return result;
  return next<int(const char*, int, const char*)>(calls::symlinkat)(target, at, path);
}

int swale_take_mkdir(const char* path, mode_t mode) {
  if (entry_refused("mkdir", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; mkdir_unmounted(AT_FDCWD, path, mode, &result)) return result;
  return next<int(const char*, mode_t)>(calls::mkdir)(path, mode);
}

int swale_take_mkdirat(int at, const char* path, mode_t mode) {
  if (entry_refused("mkdirat", at, path, SWALE_CALLER)) return -1;
  if (int result = 0; mkdir_unmounted(at, path, mode, &result)) return result;
  return next<int(int, const char*, mode_t)>(calls::mkdirat)(at, path, mode);
}

char* swale_take_mkdtemp(char* path) {
  if (entry_refused("mkdtemp", AT_FDCWD, path, SWALE_CALLER)) return nullptr;
  return next<char*(char*)>(calls::mkdtemp)(path);
}

int swale_take_mkfifo(const char* path, mode_t mode) {
  if (entry_refused("mkfifo", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mkfifo", AT_FDCWD, path, EPERM, &result)) return result;
  return next<int(const char*, mode_t)>(calls::mkfifo)(path, mode);
}

int swale_take_mkfifoat(int at, const char* path, mode_t mode) {
  if (entry_refused("mkfifoat", at, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mkfifoat", at, path, EPERM, &result)) return result;
  return next<int(int, const char*, mode_t)>(calls::mkfifoat)(at, path, mode);
}

int swale_take_mknod(const char* path, mode_t mode, dev_t device) {
  if (entry_refused("mknod", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mknod", AT_FDCWD, path, EPERM, &result)) return result;
  return next<int(const char*, mode_t, dev_t)>(calls::mknod)(path, mode, device);
}

int swale_take_mknodat(int at, const char* path, mode_t mode, dev_t device) {
  if (entry_refused("mknodat", at, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mknodat", at, path, EPERM, &result)) return result;
  return next<int(int, const char*, mode_t, dev_t)>(calls::mknodat)(at, path, mode, device);
}

int swale_take_xmknod(int version, const char* path, mode_t mode, dev_t* device) {
  if (entry_refused("mknod", AT_FDCWD, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mknod", AT_FDCWD, path, EPERM, &result)) return result;
  return next<int(int, const char*, mode_t, dev_t*)>(calls::__xmknod)(version, path, mode, device);
}

int swale_take_xmknodat(int version, int at, const char* path, mode_t mode, dev_t* device) {
  if (entry_refused("mknodat", at, path, SWALE_CALLER)) return -1;
  if (int result = 0; no_entry_unmounted("mknodat", at, path, EPERM, &result)) return result;
  return next<int(int, int, const char*, mode_t, dev_t*)>(calls::__xmknodat)(version, at, path, mode, device);
}

}  // extern "C"

}  // namespace swale::preload
