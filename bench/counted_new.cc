#include "bench/counted_new.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t> bytes_now{0};
std::atomic<uint64_t> bytes_peak{0};

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const uint64_t now = bytes_now.fetch_add(malloc_usable_size(memory)) + malloc_usable_size(memory);
  uint64_t peak = bytes_peak.load();
  while (now > peak && !bytes_peak.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

void forget(void* memory) {
  if (memory != nullptr) bytes_now.fetch_sub(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  return counted(::posix_memalign(&memory, static_cast<size_t>(alignment), bytes) == 0 ? memory : nullptr);
}
void operator delete(void* memory) noexcept { forget(memory); }
void operator delete(void* memory, size_t) noexcept { forget(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { forget(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { forget(memory); }

namespace swale::bench {

Allocations allocations() { return {bytes_now.load(), bytes_peak.load()}; }

uint64_t reset_peak() {
  const uint64_t now = bytes_now.load();
  bytes_peak.store(now);
  return now;
}

}  // namespace swale::bench
