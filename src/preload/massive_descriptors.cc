#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/massive_engine.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"

namespace swale::preload {

constinit std::atomic<uint32_t> massive_descriptors = 0;
constinit std::atomic<uint16_t> massive_table[kDescriptorsMax] = {};

namespace {

constexpr uint32_t kAliveSubfile = 1u << 31, kEnding = 1u << 30;
constexpr char kPlaceholder[] = "/proc/self";  // a link: nobody can open, enter or execute it
constexpr size_t kBytesMax = 0x7ffff000;       // Linux writes no more at once
constexpr size_t kFirstBytes = 256;
constexpr size_t kKeptBytes = 1 << 20;  // for the next value

struct OpenSubfile {
  std::atomic<uint32_t> holders = 0;                  // kAliveSubfile | kEnding | descriptors and calls
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of the value
  MassiveDirectory* directory = nullptr;
  char* value = nullptr;
  size_t bytes = 0, capacity = 0;
  char name[kSubfileNameMax + 1] = {};
};
constinit OpenSubfile open_subfiles[kSubfilesMax] = {};
static_assert(kSubfilesMax < UINT16_MAX);

OpenSubfile* take_description() {
  for (OpenSubfile& each : open_subfiles) {
    uint32_t nobody = 0;
    if (each.holders.compare_exchange_strong(nobody, kAliveSubfile | 1)) return &each;
  }
  return nullptr;
}

// The last holder has gone: the value is appended. 0, or an errno.
int finish(OpenSubfile& file) {
  uint32_t alone = kAliveSubfile;
  if (!file.holders.compare_exchange_strong(alone, kEnding)) return 0;  // somebody only looked
  int error = 0;
  if (file.bytes > 0 &&
      append_massive(*file.directory, file.name, strlen(file.name), file.value, file.bytes) != 0)
    error = errno;
  if (file.capacity > kKeptBytes) {
    ::free(file.value);
    file.value = nullptr;
    file.capacity = 0;
  }
  file.holders.fetch_and(~kEnding);
  return error;
}

int release(OpenSubfile& file) {
  return file.holders.fetch_sub(1, std::memory_order_acq_rel) == (kAliveSubfile | 1) ? finish(file) : 0;
}

// A description that stays for as long as this lives.
class HeldSubfile {
 public:
  explicit HeldSubfile(int fd) {
    settle();
    while (const uint16_t index = is_subfile(fd) ? massive_table[fd].load() : uint16_t{0}) {
      held_ = &open_subfiles[index - 1];
      held_->holders.fetch_add(1, std::memory_order_acq_rel);
      if (massive_table[fd].load() == index) return;
      release(*held_);
      held_ = nullptr;
    }
  }
  ~HeldSubfile() {
    if (held_ != nullptr) release(*held_);
  }
  HeldSubfile(const HeldSubfile&) = delete;
  HeldSubfile& operator=(const HeldSubfile&) = delete;
  explicit operator bool() const { return held_ != nullptr; }
  OpenSubfile& operator*() const { return *held_; }
  OpenSubfile* operator->() const { return held_; }

 private:
  OpenSubfile* held_ = nullptr;
};

void enter(int fd, const OpenSubfile& file) {
  massive_table[fd].store(static_cast<uint16_t>(&file - open_subfiles + 1));
  massive_descriptors.fetch_add(1);
}

// The descriptor leads nowhere from now on. 0, or the errno of the append.
int leave(int fd) {
  const uint16_t index = massive_table[fd].exchange(0);
  if (index == 0) return 0;
  massive_descriptors.fetch_sub(1);
  return release(open_subfiles[index - 1]);
}

// Null: a subfile may be opened so.
const char* wrong_flags(int flags, int* error) {
  *error = EINVAL;
  if ((flags & O_ACCMODE) == O_RDWR) return "a subfile is written or read, not both";
  if ((flags & O_ACCMODE) == O_RDONLY) return "reading neither creates a subfile nor cuts it off";
  if ((flags & O_EXCL) != 0) return "no job knows whether a name exists";
  if ((flags & O_DSYNC) != 0) return "a value is durable when closedir has returned, not before";
  if ((flags & O_TRUNC) != 0 && !truncating_appends())
    return "it has no end to cut off: open it with O_APPEND, or set SWALE_FS_MASSIVE_TRUNCATE=append";
  if ((flags & (O_APPEND | O_TRUNC)) == 0) return "values are appended only: open it with O_APPEND";
  return nullptr;
}

int open_to_write(MassiveDirectory& directory, const char* path, const char* name, int flags) {
  int error = 0;
  const char* wrong = wrong_flags(flags, &error);
  if (wrong == nullptr) wrong = wrong_name(directory, name, &error);
  OpenSubfile* const file = wrong == nullptr ? take_description() : nullptr;
  if (wrong == nullptr && file == nullptr) {
    wrong = "1,024 of them are open";
    error = EMFILE;
  }
  if (wrong != nullptr) {
    refuse_massive("open", path, error, wrong);
    return -1;
  }
  file->directory = &directory;
  file->bytes = 0;
  ::strcpy(file->name, name);
  const int how = O_PATH | O_NOFOLLOW | (flags & O_CLOEXEC);
  auto fd = static_cast<int>(raw(SYS_openat, AT_FDCWD, kPlaceholder, static_cast<long>(how)));
  if (fd >= static_cast<int>(kDescriptorsMax)) {
    raw(SYS_close, fd);
    fd = -1;
    errno = EMFILE;
  }
  if (fd < 0) {
    error = errno;
    release(*file);
    errno = error;
    return -1;
  }
  leave(fd);  // it was closed where nobody saw it
  enter(fd, *file);
  return fd;
}

bool keep(OpenSubfile& file, const void* bytes, size_t count) {
  if (file.bytes + count > file.capacity) {
    size_t capacity = file.capacity == 0 ? kFirstBytes : file.capacity;
    while (capacity < file.bytes + count) capacity *= 2;
    auto* const larger = static_cast<char*>(::realloc(file.value, capacity));
    if (larger == nullptr) return false;
    file.value = larger;
    file.capacity = capacity;
  }
  memcpy(file.value + file.bytes, bytes, count);
  file.bytes += count;
  return true;
}

int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

bool open_subfile_descriptor(int at, const char* path, int flags, const void* caller, int* opened) noexcept {
  if ((flags & (O_PATH | O_DIRECTORY)) != 0) return false;
  const char* name = nullptr;
  MassiveDirectory* const directory = massive_folder(at, path, &name, caller);
  if (directory == nullptr) return false;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0) {
    *opened = open_to_write(*directory, path, name, flags);
    return true;
  }
  *opened = next<int(int, const char*, int, mode_t)>(calls::openat)(at, path, flags, 0);
  if (*opened < 0 && errno == ENOENT) *opened = open_finished(*directory, name, flags);
  return true;
}

ssize_t write_subfile(int fd, const iovec* parts, int count) noexcept {
  const HeldSubfile held(fd);
  if (!held || is_borrowed_memory()) return fail(EBADF);
  if (count < 0 || count > IOV_MAX || (count > 0 && parts == nullptr)) return fail(EINVAL);
  size_t wanted = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > kBytesMax || (wanted += parts[i].iov_len) > kBytesMax) return fail(EINVAL);
    if (parts[i].iov_base == nullptr && parts[i].iov_len > 0) return fail(EFAULT);
  }
  const Locked lock(held->mutex);
  if (held->bytes + wanted > SWALE_VALUE_BYTES_MAX) return fail(EFBIG);
  const size_t before = held->bytes;
  for (int i = 0; i < count; ++i) {
    if (keep(*held, parts[i].iov_base, parts[i].iov_len)) continue;
    held->bytes = before;
    return fail(ENOMEM);
  }
  return static_cast<ssize_t>(wanted);
}

int close_subfile_descriptor(int fd) noexcept {
  settle();
  const int error = is_subfile(fd) && !is_borrowed_memory() ? leave(fd) : 0;
  const int closed = next<int(int)>(calls::close)(fd);
  return error != 0 ? fail(error) : closed;
}

int fcntl_subfile(int fd, int command, long argument) noexcept {
  auto* const fcntl_next = next<int(int, int, long)>(calls::fcntl);
  settle();
  if (!is_subfile(fd)) return fcntl_next(fd, command, argument);
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: {
      const int made = fcntl_next(fd, command, argument);
      if (made >= 0) share_subfile(fd, made);
      return made;
    }
    case F_GETFL:
      return O_WRONLY | O_APPEND;
    case F_SETFL:
      if ((argument & O_APPEND) != 0) return 0;
      return refuse_subfile(fd, "fcntl", EPERM, "it appends for as long as it is open");
    default:
      return fcntl_next(fd, command, argument);
  }
}

int stat_subfile(int fd, struct stat* found) noexcept {
  const HeldSubfile held(fd);
  if (!held) return fail(EBADF);
  constexpr mode_t kOwners = 0600;
  const Locked lock(held->mutex);
  describe_subfile(*held->directory, held->name, held->bytes, kOwners, found);
  return 0;
}

int refuse_subfile(int fd, const char* call, int error, const char* why) noexcept {
  const HeldSubfile held(fd);
  if (!held) return fail(EBADF);
  refuse_massive_name(*held->directory, held->name, call, error, why);
  return -1;
}

const char* folder_of_subfile(int fd) noexcept {
  const HeldSubfile held(fd);
  return held ? held->directory->path : nullptr;
}

void share_subfile(int fd, int made) noexcept {
  settle();
  if (fd == made || is_borrowed_memory() || static_cast<uint32_t>(made) >= kDescriptorsMax) return;
  const int kept = errno;
  leave(made);
  if (const HeldSubfile held(fd); held) {
    held->holders.fetch_add(1);
    enter(made, *held);
  }
  errno = kept;
}

void close_subfiles(uint32_t first, uint32_t last) noexcept {
  settle();
  if (massive_descriptors.load() == 0 || is_borrowed_memory()) return;
  for (uint32_t fd = first; fd < kDescriptorsMax && fd <= last && massive_descriptors.load() != 0; ++fd)
    leave(static_cast<int>(fd));
}

void forget_descriptors() noexcept {
  if (massive_descriptors.exchange(0) == 0) return;
  for (std::atomic<uint16_t>& each : massive_table) each.store(0);
  for (OpenSubfile& each : open_subfiles) {
    each.holders.store(0);
    each.mutex = PTHREAD_MUTEX_INITIALIZER;
  }
}

}  // namespace swale::preload
