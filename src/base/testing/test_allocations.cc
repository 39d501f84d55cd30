#include "base/testing/test_allocations.h"

#include <cstdlib>
#include <new>

namespace swale::test {

static void* allocate(size_t bytes, size_t alignment) noexcept {
  if (Allocations::refuses()) return nullptr;
  bytes = bytes == 0 ? 1 : bytes;
  return alignment == 0 ? std::malloc(bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace swale::test

void* operator new(size_t bytes) {
  void* memory = swale::test::allocate(bytes, 0);
  return memory != nullptr ? memory : throw std::bad_alloc();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  void* memory = swale::test::allocate(bytes, static_cast<size_t>(alignment));
  return memory != nullptr ? memory : throw std::bad_alloc();
}
void* operator new[](size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return swale::test::allocate(bytes, 0); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return swale::test::allocate(bytes, 0); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
