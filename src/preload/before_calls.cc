// What is done before functions that this library leaves to others (entries.S calls these with the arguments
// of the function). errno stays.
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "preload/descriptions.h"
#include "preload/light.h"
#include "preload/log_reads.h"
#include "preload/log_right.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

void give_back_one(int fd) {
  if (const Held held(fd); held) give_back(*held, fd);
}

bool passes_descriptors(const msghdr* message) {
  if (message == nullptr || message->msg_control == nullptr || message->msg_controllen < sizeof(cmsghdr))
    return false;
  for (const cmsghdr* each = CMSG_FIRSTHDR(message); each != nullptr;
       each = CMSG_NXTHDR(const_cast<msghdr*>(message), const_cast<cmsghdr*>(each)))
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) return true;
  return false;
}

// Calls past the C library's functions that this library does not follow.
bool works_on_descriptors(long number) {
  switch (number) {
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
    case SYS_open:
    case SYS_dup2:
    case SYS_creat:
#endif
    case SYS_clone:
    case SYS_clone3:
    case SYS_execve:
    case SYS_execveat:
    case SYS_openat:
    case SYS_openat2:
    case SYS_close:
    case SYS_close_range:
    case SYS_dup:
    case SYS_dup3:
    case SYS_fcntl:
    case SYS_read:
    case SYS_readv:
    case SYS_preadv2:
    case SYS_write:
    case SYS_writev:
    case SYS_pwritev2:
    case SYS_lseek:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_copy_file_range:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_mmap:
    case SYS_io_uring_setup:
    case SYS_io_uring_enter:
    case SYS_io_uring_register:
    case SYS_ioctl:
      return true;
    default:
      return false;
  }
}

// Those that programs make often, and that placeholders do not matter to.
bool needs_no_descriptors(long number) {
  switch (number) {
    case SYS_futex:
    case SYS_gettid:
    case SYS_getcpu:
    case SYS_getrandom:
    case SYS_membarrier:
    case SYS_rseq:
    case SYS_sched_getaffinity:
    case SYS_sched_setaffinity:
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" {

void swale_before_all() {
  ready();
  give_all_back();
}

void swale_before_first(int fd) {
  ready();
  give_back_one(fd);
}

void swale_before_third(const void*, long, int fd) {
  ready();
  give_back_one(fd);
}

void swale_before_both(int one, int other) {
  ready();
  give_back_one(one);
  give_back_one(other);
}

void swale_before_first_third(int one, const void*, int other) { swale_before_both(one, other); }

void swale_before_leaves(int fd) {
  ready();
  leave_to_others(fd);
}

void swale_before_sendmsg(int, const msghdr* message) {
  ready();
  if (memory.load(std::memory_order_relaxed) != nullptr && passes_descriptors(message)) give_all_back();
}

void swale_before_sendmmsg(int, const mmsghdr* messages, unsigned count) {
  ready();
  if (memory.load(std::memory_order_relaxed) == nullptr || messages == nullptr) return;
  for (unsigned i = 0; i < count; ++i)
    if (passes_descriptors(&messages[i].msg_hdr)) return give_all_back();
}

// A placeholder would answer. For FIONREAD the next byte is at the offset.
void swale_before_ioctl(int fd, unsigned long request) {
  ready();
  if (const Held held(fd); held && request == FIONREAD) give_back(*held, fd);
}

// The kernel learns how long the file is by now: a page beyond what it knows would be SIGBUS. A shared
// mapping does not follow logs, nor do logs follow it: from now on writes of this process go through the
// mount, and so do reads of the file, by all.
void swale_before_mmap(const void*, size_t, int, int flags, int fd) {
  ready();
  const bool shares = (flags & MAP_TYPE) != MAP_PRIVATE;
  if (fd < 0 || (flags & MAP_ANONYMOUS) != 0) return;
  // Only what a parent has passed on can be of a tree then.
  if (memory.load(std::memory_order_relaxed) == nullptr && !shares) return;
  const int kept = errno;
  const Held held(fd);
  if (device_on_tree(fd) != 0) {
    if (shares) {
      refuse_all_logs();
      announce_mapping(fd);
    }
    learn_size(fd);
  }
  errno = kept;
}

void swale_before_syscall(long number, long first, long last) {
  ready();
  if (massive_descriptors.load(std::memory_order_relaxed) != 0 &&
      (number == SYS_close || number == SYS_close_range))
    close_subfiles(static_cast<uint32_t>(first), static_cast<uint32_t>(number == SYS_close ? first : last));
  if (number == SYS_umask) forget_umask(), forget_umask_unmounted();
  if (!needs_no_descriptors(number)) {
    make_all_real();
    if (is_unmounted()) warn_unmounted(number, first, last);
  }
  if (memory.load(std::memory_order_relaxed) != nullptr && works_on_descriptors(number))
    leave_all_to_others();
}

}  // extern "C"

}  // namespace swale::preload
