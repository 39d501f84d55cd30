#include "tests/memory/counted_malloc.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

// The functions of glibc below those that this program replaces.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}

namespace {

std::atomic<uint64_t> held_now{0};
std::atomic<uint64_t> held_peak{0};

void add_held(uint64_t bytes) {
  const uint64_t now = held_now.fetch_add(bytes) + bytes;
  uint64_t peak = held_peak.load();
  while (now > peak && !held_peak.compare_exchange_weak(peak, now)) {
  }
}

void* counted_block(void* memory) {
  if (memory != nullptr) add_held(malloc_usable_size(memory));
  return memory;
}

// Mappings, and large aligned blocks: these begin somewhere in a larger one, of which the rest is never
// touched, and malloc_usable_size counts it. Both are few and live long.
struct Large {
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> bytes{0};
};
Large large_blocks[1024];

// False: there are too many; nothing was counted.
bool add_large(void* memory, size_t bytes) {
  for (Large& each : large_blocks) {
    uintptr_t unused = 0;
    if (!each.begin.compare_exchange_strong(unused, reinterpret_cast<uintptr_t>(memory))) continue;
    each.bytes = bytes;
    add_held(bytes);
    return true;
  }
  return false;
}

bool forget_large(void* memory) {
  if (reinterpret_cast<uintptr_t>(memory) % 4096 != 0 || memory == nullptr) return false;
  for (Large& each : large_blocks) {
    if (each.begin.load() != reinterpret_cast<uintptr_t>(memory)) continue;
    held_now.fetch_sub(each.bytes.exchange(0));
    each.begin = 0;
    return true;
  }
  return false;
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) { return counted_block(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return counted_block(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) {
  void* const memory = __libc_memalign(alignment, bytes);
  if (memory != nullptr && alignment >= 4096 && add_large(memory, bytes)) return memory;
  return counted_block(memory);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void* realloc(void* memory, size_t bytes) {
  const size_t before = memory == nullptr ? 0 : malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, bytes);
  if (moved == nullptr && bytes != 0) return nullptr;
  // Both blocks may have lived at a time.
  counted_block(moved);
  held_now.fetch_sub(before);
  return moved;
}
void free(void* memory) {
  if (memory != nullptr && !forget_large(memory)) held_now.fetch_sub(malloc_usable_size(memory));
  __libc_free(memory);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  void* const memory =
      reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
  if (memory != MAP_FAILED && (protection & PROT_WRITE) != 0) static_cast<void>(add_large(memory, bytes));
  return memory;
}
int munmap(void* address, size_t bytes) {
  static_cast<void>(forget_large(address));
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}

}  // extern "C"

namespace swale::memory_test {

HeldMemory held_memory() { return {held_now.load(), held_peak.load()}; }

uint64_t restart_peak() {
  const uint64_t now = held_now.load();
  held_peak.store(now);
  return now;
}

}  // namespace swale::memory_test
