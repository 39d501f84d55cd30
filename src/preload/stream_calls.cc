// Streams of files on a job's tree. They are the C library's own: it writes inside itself, through the mount,
// so each request had better be large. glibc gives a stream 4 KiB or 8 KiB; here one that writes gets
// kBufferBytes, for as long as it is open.
//
// Reading streams keep theirs: glibc fills it anew after each seek.
#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>

#include <atomic>

#include "preload/light.h"
#include "preload/log_right.h"
#include "preload/massive.h"
#include "preload/next_calls.h"
#include "preload/streams.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

constexpr size_t kBufferBytes = 128 << 10;
constexpr size_t kStreamsMax = 256;  // with such a buffer, at a time

struct Buffered {
  std::atomic<FILE*> stream = nullptr;
  std::atomic<char*> buffer = nullptr;
};
constinit Buffered streams[kStreamsMax];
constinit std::atomic<uint32_t> streams_count = 0;

// "r+" and all that make a file, or append.
bool writes(const char* mode) {
  for (; *mode != '\0' && *mode != ','; ++mode)
    if (*mode == 'w' || *mode == 'a' || *mode == '+') return true;
  return false;
}

// It may stay as it is: a standard stream, by freopen.
bool is_unbuffered(const FILE* stream) {
  constexpr int kUnbuffered = 2;  // _IO_UNBUFFERED, which glibc's headers no longer have
  return (stream->_flags & kUnbuffered) != 0;
}

void enlarge(FILE* stream) {
  for (Buffered& each : streams) {
    FILE* nobody = nullptr;
    if (!each.stream.compare_exchange_strong(nobody, stream)) continue;
    auto* const buffer = static_cast<char*>(::malloc(kBufferBytes));
    if (buffer != nullptr && ::setvbuf(stream, buffer, _IOFBF, kBufferBytes) == 0) {
      each.buffer.store(buffer);
      streams_count.fetch_add(1);
      return;
    }
    ::free(buffer);
    each.stream.store(nullptr);
    return;
  }
}

// freopen has taken its buffer from it.
bool enlarge_again(FILE* stream) {
  if (streams_count.load() == 0) return false;
  for (Buffered& each : streams) {
    if (each.stream.load() != stream) continue;
    char* const buffer = each.buffer.load();
    return buffer != nullptr && ::setvbuf(stream, buffer, _IOFBF, kBufferBytes) == 0;
  }
  return false;
}

}  // namespace

void enlarge_writer(FILE* stream, const char* mode) noexcept {
  if (stream == nullptr || !writes(mode)) return;
  const int kept = errno;
  const int fd = ::fileno(stream);
  if (device_on_tree(fd) != 0 && !is_unbuffered(stream) && ::__flbf(stream) == 0) {
    learn_size(fd);  // as glibc does when it chooses a buffer itself: the kernel appends there
    if (!enlarge_again(stream)) enlarge(stream);
  }
  errno = kept;
}

extern "C" {

FILE* swale_take_fopen(const char* path, const char* mode) {
  if (FILE* opened = nullptr; massive_known.load(std::memory_order_relaxed) != 0 &&
                              open_subfile(path, mode, __builtin_return_address(0), &opened))
    return opened;
  if (FILE* opened = nullptr; fopen_unmounted(path, mode, &opened)) return opened;
  before_reopening(path);
  FILE* const stream = next<decltype(::fopen)>(calls::fopen)(path, mode);
  enlarge_writer(stream, mode);
  return stream;
}

int swale_take_fclose(FILE* stream) {
  if (int closed = 0; massive_subfiles.load(std::memory_order_relaxed) != 0 && close_subfile(stream, &closed))
    return closed;
  char* buffer = nullptr;
  if (streams_count.load() > 0) {
    for (Buffered& each : streams) {
      if (each.stream.load() != stream) continue;
      buffer = each.buffer.exchange(nullptr);
      each.stream.store(nullptr);
      streams_count.fetch_sub(1);
      break;
    }
  }
  const int closed = next<decltype(::fclose)>(calls::fclose)(stream);
  ::free(buffer);
  return closed;
}

}  // extern "C"

}  // namespace swale::preload
