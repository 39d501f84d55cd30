#include "tests/faults/failing_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace swale::faults {
namespace {

thread_local bool counted = false;
std::atomic<bool> everywhere{false};
thread_local bool paused = false;
std::atomic<bool> again{false};
std::atomic<uint64_t> wanted{0};
std::atomic<uint64_t> count{0};
std::atomic<uint64_t> failures{0};
std::atomic<uint64_t*> report{nullptr};

bool fails() {
  if ((!counted && !everywhere.load(std::memory_order_relaxed)) || paused) return false;
  const uint64_t at = count.fetch_add(1, std::memory_order_relaxed) + 1;
  uint64_t* const there = report.load(std::memory_order_relaxed);
  if (there != nullptr) there[0] = at;
  const uint64_t nth = wanted.load(std::memory_order_relaxed);
  if (nth == 0 || (again.load(std::memory_order_relaxed) ? at < nth : at != nth)) return false;
  failures.fetch_add(1, std::memory_order_relaxed);
  if (there != nullptr) there[1] = 1;
  return true;
}

void* allocate(size_t bytes, size_t alignment) noexcept {
  if (fails()) return nullptr;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

FailingNew::FailingNew(Which which, uint64_t nth, Threads threads) {
  again = which == Which::kFromThere;
  wanted = nth;
  count = 0;
  failures = 0;
  everywhere = threads == Threads::kAll;
  counted = true;
}
FailingNew::~FailingNew() {
  counted = false;
  everywhere = false;
}
uint64_t FailingNew::seen() { return count; }
uint64_t FailingNew::failed() { return failures; }
void FailingNew::report_to(uint64_t* seen_and_failed) { report = seen_and_failed; }

FailingNew::Pause::Pause() : before_(paused) { paused = true; }
FailingNew::Pause::~Pause() { paused = before_; }

}  // namespace swale::faults

// The language's own names.
// NOLINTBEGIN(misc-new-delete-overloads)
using swale::faults::allocate;
using swale::faults::allocate_or_throw;
constexpr size_t kPlain = alignof(std::max_align_t);
void* operator new(size_t bytes) { return allocate_or_throw(bytes, kPlain); }
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, kPlain); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kPlain); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kPlain); }
void* operator new(size_t bytes, std::align_val_t align) { return allocate_or_throw(bytes, size_t(align)); }
void* operator new[](size_t bytes, std::align_val_t align) { return allocate_or_throw(bytes, size_t(align)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
// NOLINTEND(misc-new-delete-overloads)
