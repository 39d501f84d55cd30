// Streams of files on a job's tree. They are the C library's own: it writes inside itself, through the mount,
// so each request had better be large. glibc gives a stream 4 KiB or 8 KiB; here one that writes gets
// kBufferBytes, for as long as it is open.
//
// Reading streams keep theirs: glibc fills it anew after each seek.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>

#include "preload/light.h"
#include "preload/log_right.h"
#include "preload/massive.h"
#include "preload/next_calls.h"

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

void enlarge(FILE* stream) {
  if (device_on_tree(::fileno(stream)) == 0) return;
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

}  // namespace

extern "C" {

FILE* swale_take_fopen(const char* path, const char* mode) {
  if (FILE* opened = nullptr; massive_known.load(std::memory_order_relaxed) != 0 &&
                              open_subfile(path, mode, __builtin_return_address(0), &opened))
    return opened;
  before_reopening(path);
  FILE* const stream = next<decltype(::fopen)>(calls::fopen)(path, mode);
  if (stream == nullptr || (mode[0] != 'w' && mode[0] != 'a')) return stream;
  const int kept = errno;
  enlarge(stream);
  errno = kept;
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
