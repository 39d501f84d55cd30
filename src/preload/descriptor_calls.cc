// Descriptors begin and end: what a program opens of a job's tree is ours, by its device; dup leads
// to the same description; close forgets. Standard input, output and error are never ours: the C library has
// streams on them, which the kernel's offset serves.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/descriptions.h"
#include "preload/light.h"
#include "preload/log_reads.h"
#include "preload/log_right.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

constexpr int kFirstOfOurs = 3;

Memory* ours() {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all != nullptr && all->own.process.load(std::memory_order_acquire) <= 0) settle_after_fork(*all);
  return all;
}

// The C library has closed it where nobody saw it.
void forget(Memory& all, int fd) {
  const Held held(fd, Held::kAsItIs);
  if (!held || is_borrowed(all)) return;
  static_cast<void>(commit_light(*held));
  let_go(all, fd, *held);
}

void adopt(int fd, int flags) {
  if (fd < kFirstOfOurs || static_cast<uint32_t>(fd) >= kDescriptorsMax) return;
  Memory* all = ours();
  if (all != nullptr && all->table[fd].load(std::memory_order_relaxed) != nullptr) forget(*all, fd);
  const int mode = flags & O_ACCMODE;
  if (mode == O_ACCMODE || (flags & (O_PATH | O_DIRECTORY)) != 0) return;
  const uint64_t device = device_on_tree(fd);
  if (device == 0) return;
  all = make_memory();
  if (all == nullptr || is_borrowed(*all)) return;
  const bool writes = mode != O_RDONLY;
  meet_light(*all, fd, device, mode);
  Description* const made = begin_description(*all, device);
  if (made == nullptr) return;
  if (mode != O_WRONLY) begin_reads(*made);
  if (writes)
    promise(*all, *made, fd);
  else
    refuse_log(*made);
  // Appends have their places drawn by the server; a synchronous write is a commit.
  if ((flags & (O_APPEND | O_DSYNC | O_SYNC)) != 0) {
    made->place.store(kKernels);
    refuse_log(*made);
  }
  made->appends.store((flags & O_APPEND) != 0);
  share(*all, fd, made);
  leave(*all, made);
}

// True: it is a subfile of a massive directory, and *opened what the open gives.
bool open_massive(int at, const char* path, int flags, const void* caller, int* opened) {
  return massive_known.load(std::memory_order_relaxed) != 0 &&
         open_subfile_descriptor(at, path, flags, caller, opened);
}

// A number that was a subfile's, which nobody saw closed.
int fresh(int fd) {
  if (is_subfile(fd)) close_subfiles(static_cast<uint32_t>(fd), static_cast<uint32_t>(fd));
  return fd;
}

// What an open has given, with errno as it was.
int opened(int fd, int flags) {
  if (fd < 0) return fd;
  const int kept = errno;
  adopt(fresh(fd), flags);
  errno = kept;
  return fd;
}

// Descriptor `fd` has been made of the held one.
int also(const Held& held, int from, int fd) {
  Memory* const all = ours();
  if (fd < 0 || all == nullptr) return fd;
  const int kept = errno;
  if (fd < static_cast<int>(kDescriptorsMax) && all->table[fd].load(std::memory_order_relaxed) != nullptr)
    forget(*all, fd);
  if (held && !is_borrowed(*all)) {
    if (fd < kFirstOfOurs || static_cast<uint32_t>(fd) >= kDescriptorsMax)
      give_back(*held, from);
    else
      share(*all, fd, &*held);
  }
  errno = kept;
  return fd;
}

// In a tree of several nodes that is mounted nowhere.
bool refuse_on_nodes(int fd, int command, long argument, int* result) {
  if (!is_on_nodes_unmounted()) return false;
  auto* const lock = reinterpret_cast<struct flock*>(argument);
  switch (command) {
    case F_SETFL:
      return no_append_unmounted(fd, static_cast<int>(argument), result);
    case F_SETLK:
    case F_SETLKW:
    case F_GETLK:
      return lock_unmounted(
          fd, command, lock,
          [](int of, int what, struct flock* range) {
            return next<decltype(::fcntl)>(calls::fcntl)(of, what, reinterpret_cast<long>(range));
          },
          result);
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
      return no_lock_unmounted("fcntl (F_OFD_SETLK)", fd, lock == nullptr || lock->l_type == F_UNLCK, result);
    case F_OFD_GETLK:
      return no_lock_unmounted("fcntl (F_OFD_GETLK)", fd, false, result);
    default:
      return false;
  }
}

// The call closes `to`, if `from` is open.
template <class Call>
int replace(int from, int to, const Call& call) {
  Memory* const all = ours();
  const auto also_subfile = [&](int made) {
    if (made >= 0 && (is_subfile(from) || is_subfile(to))) share_subfile(from, to);
    return made;
  };
  if (all == nullptr || from == to || is_borrowed(*all)) return also_subfile(call());
  const Held held(from), replaced(to, Held::kAsItIs);
  if (stays_light(held)) return -1;
  if (is_own(*all, to)) move_own(*all, to);
  if (replaced) static_cast<void>(commit_light(*replaced));
  if (replaced) let_go(*all, to, *replaced);
  const int made = call();
  if (made < 0 && replaced) share(*all, to, &*replaced);
  return made < 0 ? made : also_subfile(also(held, from, made));
}

// All of a range but what is this library's own.
int close_some(unsigned first, unsigned last, int flags) {
  auto* const close_next = next<int(unsigned, unsigned, int)>(calls::close_range);
  Memory* const all = ours();
  constexpr int kOnlyMarks = 1 << 2;  // CLOSE_RANGE_CLOEXEC
  if ((flags & kOnlyMarks) == 0) close_subfiles(first, last);
  if (all == nullptr || first > last || (flags & kOnlyMarks) != 0 || is_borrowed(*all))
    return close_next(first, last, flags);
  const uint32_t end = all->descriptors_end.load(std::memory_order_acquire);
  for (unsigned i = first; i < end && i <= last; ++i) forget(*all, static_cast<int>(i));
  unsigned begin = first;
  for (;;) {
    unsigned own = ~0u;
    for (uint32_t i = 0; i < kOwnDescriptors; ++i) {
      const int each = own_descriptor(*all, i);
      if (each >= 0 && static_cast<unsigned>(each) >= begin && static_cast<unsigned>(each) <= last &&
          static_cast<unsigned>(each) < own)
        own = static_cast<unsigned>(each);
    }
    if (own == ~0u) return begin <= last ? close_next(begin, last, flags) : 0;
    if (own > begin)
      if (const int failed = close_next(begin, own - 1, flags); failed != 0) return failed;
    begin = own + 1;
  }
}

}  // namespace

// Their mode is there only if the flags say so; where it is not, a register has something else.
extern "C" {

void swale_before_real(int fd);
void swale_before_first(int fd);

int swale_take_open(const char* path, int flags, mode_t mode) {
  if (int fd = 0; open_massive(AT_FDCWD, path, flags, __builtin_return_address(0), &fd)) return fd;
  if (int fd = -1; open_unmounted(AT_FDCWD, path, flags, mode, &fd)) return fresh(fd);
  if (int fd = -1; open_light(AT_FDCWD, path, flags, mode, &fd)) return fresh(fd);
  before_reopening(path);
  return opened(next<decltype(::open)>(calls::open)(path, flags, mode), flags);
}

int swale_take_openat(int directory, const char* path, int flags, mode_t mode) {
  if (int fd = 0; open_massive(directory, path, flags, __builtin_return_address(0), &fd)) return fd;
  if (int fd = -1; open_unmounted(directory, path, flags, mode, &fd)) return fresh(fd);
  if (int fd = -1; open_light(directory, path, flags, mode, &fd)) return fresh(fd);
  before_reopening(path);
  return opened(next<decltype(::openat)>(calls::openat)(directory, path, flags, mode), flags);
}

int swale_take_open_2(const char* path, int flags) {
  if (int fd = 0; open_massive(AT_FDCWD, path, flags, __builtin_return_address(0), &fd)) return fd;
  if (int fd = -1; open_unmounted(AT_FDCWD, path, flags, 0, &fd)) return fresh(fd);
  if (int fd = -1; (flags & O_CREAT) == 0 && open_light(AT_FDCWD, path, flags, 0, &fd)) return fresh(fd);
  before_reopening(path);
  return opened(next<int(const char*, int)>(calls::__open_2)(path, flags), flags);
}

int swale_take_openat_2(int directory, const char* path, int flags) {
  if (int fd = 0; open_massive(directory, path, flags, __builtin_return_address(0), &fd)) return fd;
  if (int fd = -1; open_unmounted(directory, path, flags, 0, &fd)) return fresh(fd);
  if (int fd = -1; (flags & O_CREAT) == 0 && open_light(directory, path, flags, 0, &fd)) return fresh(fd);
  before_reopening(path);
  return opened(next<int(int, const char*, int)>(calls::__openat_2)(directory, path, flags), flags);
}

int swale_take_creat(const char* path, mode_t mode) {
  constexpr int kFlags = O_CREAT | O_WRONLY | O_TRUNC;
  if (int fd = 0; open_massive(AT_FDCWD, path, kFlags, __builtin_return_address(0), &fd)) return fd;
  if (int fd = -1; open_unmounted(AT_FDCWD, path, kFlags, mode, &fd)) return fresh(fd);
  if (int fd = -1; open_light(AT_FDCWD, path, kFlags, mode, &fd)) return fresh(fd);
  before_reopening(path);
  return opened(next<decltype(::creat)>(calls::creat)(path, mode), kFlags);
}

int swale_take_mkstemp(char* path) {
  if (refuse_made_name("mkstemp", path, __builtin_return_address(0))) return -1;
  if (int fd = -1; mkstemp_unmounted(path, 0, 0, &fd)) return fresh(fd);
  return opened(next<int(char*)>(calls::mkstemp)(path), O_RDWR);
}

int swale_take_mkostemp(char* path, int flags) {
  if (refuse_made_name("mkostemp", path, __builtin_return_address(0))) return -1;
  if (int fd = -1; mkstemp_unmounted(path, 0, flags, &fd)) return fresh(fd);
  return opened(next<int(char*, int)>(calls::mkostemp)(path, flags), (flags & ~O_ACCMODE) | O_RDWR);
}

int swale_take_mkstemps(char* path, int suffix) {
  if (refuse_made_name("mkstemps", path, __builtin_return_address(0))) return -1;
  if (int fd = -1; mkstemp_unmounted(path, suffix, 0, &fd)) return fresh(fd);
  return opened(next<int(char*, int)>(calls::mkstemps)(path, suffix), O_RDWR);
}

int swale_take_mkostemps(char* path, int suffix, int flags) {
  if (refuse_made_name("mkostemps", path, __builtin_return_address(0))) return -1;
  if (int fd = -1; mkstemp_unmounted(path, suffix, flags, &fd)) return fresh(fd);
  return opened(next<int(char*, int, int)>(calls::mkostemps)(path, suffix, flags),
                (flags & ~O_ACCMODE) | O_RDWR);
}

int swale_take_close(int fd) {
  if (is_subfile(fd)) return close_subfile_descriptor(fd);
  auto* const close_next = next<decltype(::close)>(calls::close);
  Memory* const all = ours();
  if (all == nullptr) return close_next(fd);
  const Held held(fd, Held::kAsItIs);
  if (!held && !is_own(*all, fd)) return close_next(fd);
  if (is_borrowed(*all)) return close_next(fd);
  if (!held) {  // the program closes all numbers, and does not know this one
    errno = EBADF;
    return -1;
  }
  const int failed = commit_light(*held);
  let_go(*all, fd, *held);
  const int closed = close_next(fd);
  if (failed == 0 || closed != 0) return closed;
  errno = failed;
  return -1;
}

int swale_take_close_range(unsigned first, unsigned last, int flags) {
  return close_some(first, last, flags);
}

void swale_take_closefrom(int first) {
  if (ours() == nullptr && massive_descriptors.load() == 0) return next<void(int)>(calls::closefrom)(first);
  close_some(first > 0 ? static_cast<unsigned>(first) : 0, ~0u, 0);
}

int swale_take_dup(int fd) {
  if (is_subfile(fd)) return fcntl_subfile(fd, F_DUPFD, 0);
  const Held held(fd);
  if (stays_light(held)) return -1;
  return also(held, fd, next<decltype(::dup)>(calls::dup)(fd));
}

int swale_take_dup2(int from, int to) {
  return replace(from, to, [&] { return next<decltype(::dup2)>(calls::dup2)(from, to); });
}

int swale_take_dup3(int from, int to, int flags) {
  return replace(from, to, [&] { return next<int(int, int, int)>(calls::dup3)(from, to, flags); });
}

int swale_take_fcntl(int fd, int command, long argument) {
  if (is_subfile(fd)) return fcntl_subfile(fd, command, argument);
  auto* const fcntl_next = next<decltype(::fcntl)>(calls::fcntl);
  if (command == F_GETFD || command == F_SETFD) return fcntl_next(fd, command, argument);
  if (int result = 0; refuse_on_nodes(fd, command, argument, &result)) return result;
  const Held held(fd);
  if (stays_light(held)) return -1;
  if (!held && ours() == nullptr) return fcntl_next(fd, command, argument);
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return also(held, fd, fcntl_next(fd, command, argument));
    case F_SETFL:
      if (!held) break;
      if ((argument & O_APPEND) != 0) {
        give_back(*held, fd);
        refuse_log(*held);
      }
      held->appends.store((argument & O_APPEND) != 0);
      break;
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
      if (held && argument != 0 && reinterpret_cast<const struct flock*>(argument)->l_whence == SEEK_CUR)
        give_back(*held, fd);
      break;
    default:
      break;
  }
  return fcntl_next(fd, command, argument);
}

int swale_take_flock(int fd, int operation) {
  swale_before_real(fd);
  if (int result = 0; no_lock_unmounted("flock", fd, (operation & LOCK_UN) != 0, &result)) return result;
  return next<int(int, int)>(calls::flock)(fd, operation);
}

int swale_take_lockf(int fd, int command, off_t bytes) {
  swale_before_first(fd);
  if (!is_on_nodes_unmounted()) return next<int(int, int, off_t)>(calls::lockf)(fd, command, bytes);
  struct flock range = {};  // as the C library does
  range.l_type = static_cast<short>(command == F_ULOCK ? F_UNLCK : F_WRLCK);
  range.l_whence = SEEK_CUR;
  range.l_len = bytes;
  if (command == F_LOCK) return swale_take_fcntl(fd, F_SETLKW, reinterpret_cast<long>(&range));
  if (command != F_TEST) return swale_take_fcntl(fd, F_SETLK, reinterpret_cast<long>(&range));
  if (swale_take_fcntl(fd, F_GETLK, reinterpret_cast<long>(&range)) != 0) return -1;
  if (range.l_type == F_UNLCK || range.l_pid == ::getpid()) return 0;
  errno = EACCES;
  return -1;
}

}  // extern "C"

}  // namespace swale::preload
