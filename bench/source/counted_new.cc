#include "bench/source/counted_new.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

uint64_t allocated = 0;
uint64_t allocated_max = 0;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  allocated += malloc_usable_size(memory);
  allocated_max = std::max(allocated_max, allocated);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) allocated -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace swale::bench {

uint64_t begin_counting_allocations() { return allocated_max = allocated; }
uint64_t allocated_bytes_max() { return allocated_max; }

}  // namespace swale::bench
