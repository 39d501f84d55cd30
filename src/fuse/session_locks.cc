#include "fuse/session_locks.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/contain.h"
#include "fuse/request.h"

namespace swale::fuse {
namespace {

using fs::FileLock;
using fs::FileLocks;
using fs::LockKind;
using fs::LockType;

LockType type_of(short kernel) {
  return kernel == F_WRLCK ? LockType::kWrite : kernel == F_RDLCK ? LockType::kRead : LockType::kNone;
}

FileLock lock_of(const fuse_file_info* info, const struct flock& kernel) {
  const auto begin = static_cast<uint64_t>(kernel.l_start);
  const uint64_t end = kernel.l_len == 0 ? fs::kLockEnd : begin + static_cast<uint64_t>(kernel.l_len);
  return {LockKind::kRange,
          type_of(kernel.l_type),
          begin,
          end,
          info->lock_owner,
          static_cast<uint32_t>(kernel.l_pid)};
}

// A signal has come for a process that waits; the request is still there.
void interrupted(fuse_req_t request, void* number) {
  static_cast<void>(contain([&] { fs_of(request).locks()->interrupt(reinterpret_cast<uint64_t>(number)); }));
}

// Afterwards the request is answered, or will be.
void set(fuse_req_t request, const fuse_file_info* info, const FileLock& wanted, bool waits) {
  FileLocks& locks = *fs_of(request).locks();
  uint64_t number = 0;
  const Status begun =
      contain([&] { number = locks.begin([request](int failed) { fuse_reply_err(request, failed); }); });
  if (!begun.ok()) {
    fuse_reply_err(request, begun.posix_error());
    return;
  }
  if (waits) fuse_req_interrupt_func(request, interrupted, reinterpret_cast<void*>(number));
  locks.set(file_of(info), wanted, waits, number);
}

void setlk(fuse_req_t request, fuse_ino_t number, fuse_file_info* info, struct flock* lock, int sleeps) {
  const FileLock wanted = lock_of(info, *lock);
  run_or_aside(request, number, [=, info = *info] { set(request, &info, wanted, sleeps != 0); });
}

void flock(fuse_req_t request, fuse_ino_t number, fuse_file_info* info, int operation) {
  const int what = operation & ~LOCK_NB;
  const LockType type = what == LOCK_EX   ? LockType::kWrite
                        : what == LOCK_SH ? LockType::kRead
                                          : LockType::kNone;
  const auto pid = static_cast<uint32_t>(fuse_req_ctx(request)->pid);
  const FileLock wanted{LockKind::kWhole, type, 0, fs::kLockEnd, info->lock_owner, pid};
  run_or_aside(request, number,
               [=, info = *info] { set(request, &info, wanted, (operation & LOCK_NB) == 0); });
}

void getlk(fuse_req_t request, fuse_ino_t, fuse_file_info* info, struct flock* lock) {
  FileLock found;
  int failed = 0;
  const Status status =
      contain([&] { failed = fs_of(request).locks()->get(file_of(info), lock_of(info, *lock), &found); });
  if (!status.ok()) failed = status.posix_error();
  if (failed != 0) {
    fuse_reply_err(request, failed);
    return;
  }
  struct flock answer = {};
  answer.l_type = found.type == LockType::kWrite  ? F_WRLCK
                  : found.type == LockType::kRead ? F_RDLCK
                                                  : F_UNLCK;
  answer.l_whence = SEEK_SET;
  answer.l_start = static_cast<off_t>(found.begin);
  answer.l_len = found.end == fs::kLockEnd ? 0 : static_cast<off_t>(found.end - found.begin);
  answer.l_pid = static_cast<pid_t>(found.pid);
  fuse_reply_lock(request, &answer);
}

}  // namespace

void add_lock_operations(fuse_lowlevel_ops* table) {
  table->getlk = getlk;
  table->setlk = setlk;
  table->flock = flock;
}

int end_locks_of_closer(fuse_req_t request, const fuse_file_info* info) {
  FileLocks* const locks = fs_of(request).locks();
  return locks == nullptr ? 0 : locks->end_owner(file_of(info), info->lock_owner);
}

}  // namespace swale::fuse
