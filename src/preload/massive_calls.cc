// Subfiles of a massive directory as streams, which append.
//
// A stream is the C library's, with functions of ours below it and no descriptor. It is made once and used
// again: making one costs 300 ns. Its slot has the value, which fclose appends as a whole.
#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "preload/massive.h"
#include "preload/massive_files.h"
#include "preload/messages.h"
#include "preload/next_calls.h"

namespace swale::preload {

std::atomic<uint32_t> massive_subfiles = 0;

namespace {

constexpr size_t kBufferBytes = 4096;

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
  char name[kSubfileNameMax + 1] = {};
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

// Asking where it stands is how libraries find out: no reason for a message.
int seek_subfile(void* cookie, off64_t* offset, int whence) {
  const Subfile& file = *static_cast<const Subfile*>(cookie);
  if (whence != SEEK_CUR || *offset != 0)
    refuse_massive_name(*file.directory, file.name, "fseek", ESPIPE, kNoPlaces);
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
  if (truncating_appends()) return nullptr;
  return "it has no end to cut off: open it with \"a\", or set SWALE_FS_MASSIVE_TRUNCATE=append";
}

}  // namespace

namespace {

FILE* open_to_read(MassiveDirectory& directory, const char* path, const char* name, const char* mode) {
  FILE* const plain = next<decltype(::fopen)>(calls::fopen)(path, mode);
  if (plain != nullptr || errno != ENOENT) return plain;
  const int fd = open_finished(directory, name, strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0);
  if (fd < 0) return nullptr;
  FILE* const stream = next<decltype(::fdopen)>(calls::fdopen)(fd, mode);
  if (stream == nullptr) next<decltype(::close)>(calls::close)(fd);
  return stream;
}

}  // namespace

bool open_subfile(const char* path, const char* mode, const void* caller, FILE** opened) noexcept {
  const char* name = nullptr;
  MassiveDirectory* const directory = massive_folder(AT_FDCWD, path, &name, caller);
  if (directory == nullptr) return false;
  *opened = nullptr;
  if (mode[0] == 'r' && strchr(mode, '+') == nullptr) {
    *opened = open_to_read(*directory, path, name, mode);
    return true;
  }
  int error = 0;
  const char* wrong = mode[0] == 'a' && mode[1] == '\0' ? nullptr : wrong_mode(mode, &error);
  if (wrong == nullptr) wrong = wrong_name(*directory, name, &error);
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
  const size_t name_bytes = strlen(name);
  file->name_bytes = static_cast<uint8_t>(name_bytes);
  memcpy(file->name, name, name_bytes);
  *opened = stream_of(*file);
  if (*opened == nullptr) {
    errno = ENOMEM;
    file->taken.store(false, std::memory_order_release);
  }
  return true;
}

namespace {

// The stream's whole value. In the usual case it still lies in the stream's buffer, and the engine copies it
// from there: flushing costs three times as much as taking it out.
void append_value(Subfile& file, FILE* stream) {
  file.closing = true;
  const char* const begin = stream->_IO_write_base;
  const auto bytes = static_cast<size_t>(stream->_IO_write_ptr - begin);
  if (begin == file.buffer && bytes > 0 && file.value_bytes == 0 && ::fwide(stream, 0) <= 0 &&
      ::__flbf(stream) == 0 && ::ferror_unlocked(stream) == 0) {
    stream->_IO_write_ptr = stream->_IO_write_base;
    if (append_massive(*file.directory, file.name, file.name_bytes, begin, bytes) != 0) file.error = errno;
    return;
  }
  ::fflush_unlocked(stream);
  if (file.value_bytes > 0 && file.error == 0 && !file.appended &&
      append_massive(*file.directory, file.name, file.name_bytes, file.value, file.value_bytes) != 0)
    file.error = errno;
}

}  // namespace

bool close_subfile(FILE* stream, int* closed) noexcept {
  Subfile* const file = subfile_of(stream);
  if (file == nullptr) return false;
  if (!file->taken.load()) {  // closed twice
    errno = EBADF;
    *closed = EOF;
    return true;
  }
  append_value(*file, stream);
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

bool truncating_appends() noexcept {
  const char* const truncate = ::getenv("SWALE_FS_MASSIVE_TRUNCATE");
  if (truncate == nullptr || *truncate == '\0') return false;
  if (strcmp(truncate, "append") == 0) return true;
  static constinit std::atomic<bool> told = false;
  if (!told.exchange(true))
    tell(
        "SWALE_FS_MASSIVE_TRUNCATE=%s: there is no such value, and it changes nothing: set it to append, or "
        "unset it",
        truncate);
  return false;
}

const char* wrong_name(const MassiveDirectory& directory, const char* name, int* error) noexcept {
  *error = EPERM;
  if (!is_open_for_values(directory))
    return "no epoch has begun: every rank calls opendir of the directory first";
  *error = ENAMETOOLONG;
  return strlen(name) > kSubfileNameMax ? "its name is too long" : nullptr;
}

}  // namespace swale::preload
