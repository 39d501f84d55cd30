#include "imd/test_allocations.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace swale::test {

// Whether this allocation is made by the destructor of a JSON value: nlohmann's (3.11) puts the children on a stack of its
// own, and throws out of the destructor if there is no memory for that. Nothing around it can help.
static bool inside_json_destructor() {
  void* frames[16];
  const int count = ::backtrace(frames, 16);
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (::dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
    if (std::strstr(info.dli_sname, "json_value7destroy") != nullptr) return true;
  }
  return false;
}

void Allocations::prepare() {
  void* frame;
  ::backtrace(&frame, 1);  // allocates the first time
}

static void* allocate(size_t bytes, size_t alignment) noexcept {
  if (Allocations::refuses() && !inside_json_destructor()) return nullptr;
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
