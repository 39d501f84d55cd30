// Subfiles of a massive directory: streams that append, and calls that a subfile refuses.
//
// A stream is the C library's, with functions of ours below it and no descriptor. It is made once and used
// again: making one costs 300 ns. Its slot has the value, which fclose appends as a whole.
#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

#include "preload/massive.h"
#include "preload/next_calls.h"

namespace swale::preload {

std::atomic<uint32_t> massive_subfiles = 0;

namespace {

constexpr size_t kBufferBytes = 4096;
constexpr size_t kNameMax = 255;

struct Subfile {
  std::atomic<bool> taken = false;
  std::atomic<FILE*> stream = nullptr;
  MassiveDirectory* directory = nullptr;
  char* buffer = nullptr;  // of the stream
  char* value = nullptr;   // what no longer fits in the buffer
  size_t value_bytes = 0, value_capacity = 0;
  int error = 0;         // of a write
  bool closing = false;  // the next write is the last
  bool appended = false;
  uint8_t name_bytes = 0;
  char name[kNameMax + 1] = {};
};

constinit Subfile subfiles[kSubfilesMax];
__attribute__((tls_model("initial-exec"))) constinit thread_local uint32_t last_subfile = 0;

bool keep(Subfile& file, const char* bytes, size_t count) {
  if (file.value_bytes + count > file.value_capacity) {
    size_t capacity = file.value_capacity == 0 ? kBufferBytes * 4 : file.value_capacity;
    while (capacity < file.value_bytes + count) capacity *= 2;
    auto* const larger = static_cast<char*>(::realloc(file.value, capacity));
    if (larger == nullptr) return false;
    file.value = larger;
    file.value_capacity = capacity;
  }
  memcpy(file.value + file.value_bytes, bytes, count);
  file.value_bytes += count;
  return true;
}

ssize_t write_subfile(void* cookie, const char* bytes, size_t count) {
  Subfile& file = *static_cast<Subfile*>(cookie);
  if (file.closing && file.value_bytes == 0 && !file.appended) {
    file.appended = true;
    if (append_massive(*file.directory, file.name, file.name_bytes, bytes, count) == 0)
      return static_cast<ssize_t>(count);
    file.error = errno;
    return 0;
  }
  if (keep(file, bytes, count)) return static_cast<ssize_t>(count);
  file.error = errno = ENOMEM;
  return 0;
}

int seek_subfile(void*, off64_t*, int) {
  errno = ESPIPE;
  return -1;
}

Subfile* take_slot() {
  Subfile& again = subfiles[last_subfile];
  if (!again.taken.exchange(true, std::memory_order_acquire)) return &again;
  for (Subfile& each : subfiles) {
    if (each.taken.load(std::memory_order_relaxed) || each.taken.exchange(true, std::memory_order_acquire))
      continue;
    last_subfile = static_cast<uint32_t>(&each - subfiles);
    return &each;
  }
  return nullptr;
}

// Under `taken`.
FILE* stream_of(Subfile& file) {
  if (FILE* const made = file.stream.load(std::memory_order_relaxed)) return made;
  if (file.buffer == nullptr) file.buffer = static_cast<char*>(::malloc(kBufferBytes));
  if (file.buffer == nullptr) return nullptr;
  FILE* const made = ::fopencookie(&file, "w", {nullptr, write_subfile, seek_subfile, nullptr});
  if (made == nullptr) return nullptr;
  ::setvbuf(made, file.buffer, _IOFBF, kBufferBytes);
  file.stream.store(made, std::memory_order_release);
  const auto end = static_cast<uint32_t>(&file - subfiles) + 1;
  uint32_t seen = massive_subfiles.load();
  while (seen < end && !massive_subfiles.compare_exchange_weak(seen, end)) {
  }
  return made;
}

Subfile* subfile_of(FILE* stream) {
  if (subfiles[last_subfile].stream.load(std::memory_order_relaxed) == stream) return &subfiles[last_subfile];
  const uint32_t end = massive_subfiles.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end; ++i)
    if (subfiles[i].stream.load(std::memory_order_relaxed) == stream) return &subfiles[i];
  return nullptr;
}

// Null: it may be opened.
const char* wrong_mode(const char* mode, int* error) {
  *error = EINVAL;
  if (strchr(mode, '+') != nullptr) return "a subfile is written or read, not both";
  if (strchr(mode, 'x') != nullptr) return "no job knows whether a name exists";
  if (mode[0] == 'a') return nullptr;
  const char* const truncate = ::getenv("SWALE_FS_MASSIVE_TRUNCATE");
  if (truncate != nullptr && strcmp(truncate, "append") == 0) return nullptr;
  return "it has no end to cut off: open it with \"a\", or set SWALE_FS_MASSIVE_TRUNCATE=append";
}

}  // namespace

bool open_subfile(const char* path, const char* mode, const void* caller, FILE** opened) noexcept {
  if (mode[0] != 'w' && mode[0] != 'a' && !(mode[0] == 'r' && strchr(mode, '+') != nullptr)) return false;
  const char* name = nullptr;
  MassiveDirectory* const directory = massive_folder(AT_FDCWD, path, &name, caller);
  if (directory == nullptr) return false;
  *opened = nullptr;
  int error = 0;
  const char* wrong = mode[0] == 'a' && mode[1] == '\0' ? nullptr : wrong_mode(mode, &error);
  if (wrong == nullptr && !is_open_for_values(*directory)) {
    wrong = "no epoch has begun: every rank calls opendir of the directory first";
    error = EPERM;
  }
  const size_t name_bytes = strlen(name);
  if (wrong == nullptr && name_bytes > kNameMax) {
    wrong = "its name is too long";
    error = ENAMETOOLONG;
  }
  Subfile* const file = wrong == nullptr ? take_slot() : nullptr;
  if (wrong == nullptr && file == nullptr) {
    wrong = "1,024 of them are open";
    error = EMFILE;
  }
  if (wrong != nullptr) {
    refuse_massive("fopen", path, error, wrong);
    return true;
  }
  file->directory = directory;
  file->value_bytes = 0;
  file->error = 0;
  file->closing = file->appended = false;
  file->name_bytes = static_cast<uint8_t>(name_bytes);
  memcpy(file->name, name, name_bytes);
  *opened = stream_of(*file);
  if (*opened == nullptr) {
    errno = ENOMEM;
    file->taken.store(false, std::memory_order_release);
  }
  return true;
}

bool close_subfile(FILE* stream, int* closed) noexcept {
  Subfile* const file = subfile_of(stream);
  if (file == nullptr) return false;
  if (!file->taken.load()) {  // closed twice
    errno = EBADF;
    *closed = EOF;
    return true;
  }
  file->closing = true;
  ::fflush_unlocked(stream);
  if (file->value_bytes > 0 && file->error == 0 && !file->appended &&
      append_massive(*file->directory, file->name, file->name_bytes, file->value, file->value_bytes) != 0)
    file->error = errno;
  const int error = file->error;
  // A stream that has failed, or that was made wide or given another buffer, would not be like a new one.
  // (To give it ours anew would cost more: glibc then fills it byte by byte.)
  if (error != 0 || ::fwide(stream, 0) > 0 || ::ferror_unlocked(stream) != 0 || ::__flbf(stream) != 0 ||
      stream->_IO_buf_base != file->buffer) {
    file->stream.store(nullptr);
    file->closing = false;  // what it still has goes to `value`, and is dropped
    next<decltype(::fclose)>(calls::fclose)(stream);
  }
  file->taken.store(false, std::memory_order_release);
  if (error != 0) errno = error;
  *closed = error == 0 ? 0 : EOF;
  return true;
}

bool refuse_open(int at, const char* path, int flags, const void* caller) noexcept {
  const char* name = nullptr;
  if ((flags & O_ACCMODE) == O_RDONLY || massive_folder(at, path, &name, caller) == nullptr) return false;
  if ((flags & O_ACCMODE) == O_RDWR)
    refuse_massive("open", path, EINVAL, "a subfile is written or read, not both");
  else
    refuse_massive("open", path, EOPNOTSUPP, "it has no descriptors: write it with fopen, fwrite and fclose");
  return true;
}

namespace {

// True, with errno set.
bool refused(const char* call, int at, const char* path, const void* caller) {
  const char* name = nullptr;
  if (massive_known.load(std::memory_order_relaxed) == 0 ||
      massive_folder(at, path, &name, caller) == nullptr)
    return false;
  refuse_massive(call, path, EPERM, "values are appended only");
  return true;
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
    refuse_massive(call, from, EPERM, "values are appended only");
  else
    refuse_massive(call, source != nullptr ? from : to, EXDEV, "values have no other place");
  return true;
}

}  // namespace

#define SWALE_CALLER __builtin_return_address(0)

extern "C" {

int swale_take_rename(const char* from, const char* to) {
  if (rename_refused("rename", AT_FDCWD, from, AT_FDCWD, to, SWALE_CALLER)) return -1;
  return next<int(const char*, const char*)>(calls::rename)(from, to);
}

int swale_take_renameat(int from_at, const char* from, int to_at, const char* to) {
  if (rename_refused("renameat", from_at, from, to_at, to, SWALE_CALLER)) return -1;
  return next<int(int, const char*, int, const char*)>(calls::renameat)(from_at, from, to_at, to);
}

int swale_take_renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  if (rename_refused("renameat2", from_at, from, to_at, to, SWALE_CALLER)) return -1;
  return next<int(int, const char*, int, const char*, unsigned)>(calls::renameat2)(from_at, from, to_at, to,
                                                                                   flags);
}

int swale_take_unlink(const char* path) {
  if (refused("unlink", AT_FDCWD, path, SWALE_CALLER)) return -1;
  swale_before_names();
  return next<int(const char*)>(calls::unlink)(path);
}

int swale_take_unlinkat(int at, const char* path, int flags) {
  if ((flags & AT_REMOVEDIR) == 0 && refused("unlinkat", at, path, SWALE_CALLER)) return -1;
  swale_before_names();
  return next<int(int, const char*, int)>(calls::unlinkat)(at, path, flags);
}

int swale_take_remove(const char* path) {
  if (refused("remove", AT_FDCWD, path, SWALE_CALLER)) return -1;
  swale_before_names();
  return next<int(const char*)>(calls::remove)(path);
}

int swale_take_chmod(const char* path, mode_t mode) {
  if (refused("chmod", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, mode_t)>(calls::chmod)(path, mode);
}

int swale_take_fchmodat(int at, const char* path, mode_t mode, int flags) {
  if (refused("fchmodat", at, path, SWALE_CALLER)) return -1;
  return next<int(int, const char*, mode_t, int)>(calls::fchmodat)(at, path, mode, flags);
}

int swale_take_chown(const char* path, uid_t user, gid_t group) {
  if (refused("chown", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, uid_t, gid_t)>(calls::chown)(path, user, group);
}

int swale_take_lchown(const char* path, uid_t user, gid_t group) {
  if (refused("lchown", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, uid_t, gid_t)>(calls::lchown)(path, user, group);
}

int swale_take_fchownat(int at, const char* path, uid_t user, gid_t group, int flags) {
  if (refused("fchownat", at, path, SWALE_CALLER)) return -1;
  return next<int(int, const char*, uid_t, gid_t, int)>(calls::fchownat)(at, path, user, group, flags);
}

int swale_take_utime(const char* path, const utimbuf* times) {
  if (refused("utime", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, const utimbuf*)>(calls::utime)(path, times);
}

int swale_take_utimes(const char* path, const timeval* times) {
  if (refused("utimes", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, const timeval*)>(calls::utimes)(path, times);
}

int swale_take_utimensat(int at, const char* path, const timespec* times, int flags) {
  if (refused("utimensat", at, path, SWALE_CALLER)) return -1;
  return next<int(int, const char*, const timespec*, int)>(calls::utimensat)(at, path, times, flags);
}

int swale_take_truncate(const char* path, off_t bytes) {
  if (refused("truncate", AT_FDCWD, path, SWALE_CALLER)) return -1;
  return next<int(const char*, off_t)>(calls::truncate)(path, bytes);
}

}  // extern "C"

}  // namespace swale::preload
