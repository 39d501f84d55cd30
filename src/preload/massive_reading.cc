// Names of a massive directory whose epochs have ended, by path: stat says what their values take, open gives
// a file in memory that has the values of all epochs, one behind the other. The kernel is asked first: it has
// the directory's own files.
//
// The file is the kernel's, so whatever a program does with it is right; nobody can write it. Costs a query
// and a copy: for many names there are `swale mount` and `swale scan`.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/massive_engine.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"

namespace swale::preload {
namespace {

constexpr mode_t kReadOnly = 0444;

// Under the reader's mutex: a reader with the epochs of now, or null with errno set.
swale_reader* reader_of(MassiveDirectory& directory) {
  if (!load(directory.path)) return nullptr;
  swale_reader* reader = directory.reader.load();
  if (reader != nullptr) {
    if (const int code = library.reader_refresh(reader, nullptr); code != SWALE_OK) {
      failed("reading its epochs", directory.path, code);
      return nullptr;
    }
    return reader;
  }
  if (const int code = library.reader_open(directory.path, nullptr, &reader); code != SWALE_OK) {
    failed("reading its epochs", directory.path, code);
    return nullptr;
  }
  close_at_exit();
  directory.reader.store(reader);
  return reader;
}

// Of a name: its values in all epochs that have ended.
class Values {
 public:
  Values(MassiveDirectory& directory, const char* name) {
    const Locked lock(reader_mutex);
    swale_reader* const reader = reader_of(directory);
    if (reader == nullptr) return;
    const int code = library.reader_get(reader, name, strlen(name), SWALE_ALL_EPOCHS, &values_);
    if (code == SWALE_NOT_FOUND || code == SWALE_INVALID_ARGUMENT)
      errno = ENOENT;
    else if (code != SWALE_OK)
      failed(name, directory.path, code);
  }
  ~Values() {
    const int kept = errno;
    if (values_ != nullptr) library.values_free(values_);
    errno = kept;
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  explicit operator bool() const { return values_ != nullptr; }

  template <class Visit>  // (bytes, count): whether to go on
  bool each(const Visit& visit) const {
    const size_t count = library.values_count(values_);
    for (size_t i = 0; i < count; ++i) {
      const void* value = nullptr;
      size_t bytes = 0;
      if (library.values_at(values_, i, nullptr, &value, &bytes) != SWALE_OK) return false;
      if (!visit(static_cast<const char*>(value), bytes)) return false;
    }
    return true;
  }

 private:
  swale_values* values_ = nullptr;
};

// A file in memory with these bytes, opened to read.
int file_of(const Values& values, int flags) {
  const auto written =
      static_cast<int>(raw(SYS_memfd_create, "swale", static_cast<long>(MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (written < 0) return -1;
  const bool whole = values.each([&](const char* at, size_t bytes) {
    while (bytes > 0) {
      const long done = raw(SYS_write, written, at, bytes);
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<size_t>(done);
    }
    return true;
  });
  long opened = -1;
  if (whole) {
    raw(SYS_fchmod, written, static_cast<long>(kReadOnly));
    raw(SYS_fcntl, written, static_cast<long>(F_ADD_SEALS),
        static_cast<long>(F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    char path[32];
    ::snprintf(path, sizeof path, "/proc/self/fd/%d", written);
    const int how = O_RDONLY | (flags & (O_CLOEXEC | O_NONBLOCK));
    opened = raw(SYS_openat, AT_FDCWD, path, static_cast<long>(how));
  }
  const int kept = errno;
  raw(SYS_close, written);
  errno = kept;
  return static_cast<int>(opened);
}

}  // namespace

void describe_subfile(const MassiveDirectory& directory, const char* name, uint64_t bytes, mode_t mode,
                      struct stat* found) noexcept {
  constexpr uint64_t kBasis = 14695981039346656037u, kPrime = 1099511628211u;  // FNV-1a
  constexpr blkcnt_t kBlock = 512;
  uint64_t inode = kBasis ^ directory.inode;
  for (const char* at = name; *at != '\0'; ++at) inode = (inode ^ static_cast<uint8_t>(*at)) * kPrime;
  const int kept = errno;
  *found = {};
  next<int(int, const char*, struct stat*, int)>(calls::fstatat)(AT_FDCWD, directory.path, found, 0);
  errno = kept;
  found->st_ino = inode;
  found->st_mode = S_IFREG | mode;
  found->st_nlink = 1;
  found->st_size = static_cast<off_t>(bytes);
  found->st_blocks = (found->st_size + kBlock - 1) / kBlock;
}

int open_finished(MassiveDirectory& directory, const char* name, int flags) noexcept {
  const Values values(directory, name);
  return values ? file_of(values, flags) : -1;
}

int stat_finished(MassiveDirectory& directory, const char* name, struct stat* found) noexcept {
  const Values values(directory, name);
  if (!values) return -1;
  uint64_t sum = 0;
  values.each([&](const char*, size_t bytes) {
    sum += bytes;
    return true;
  });
  describe_subfile(directory, name, sum, kReadOnly, found);
  return 0;
}

}  // namespace swale::preload
