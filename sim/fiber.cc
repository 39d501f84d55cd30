#include "sim/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SWALE_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define SWALE_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#endif

namespace swale::sim {
namespace {

// makecontext passes ints only.
thread_local Fiber* starting = nullptr;

size_t guard_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber(std::function<void(Fiber&)> body) : body_(std::move(body)) {}

Fiber::~Fiber() {
  cancelled_ = true;
  while (memory_ != nullptr && !done_) resume();
#ifdef SWALE_FIBER_TSAN
  if (own_.thread != nullptr) __tsan_destroy_fiber(own_.thread);
#endif
#ifdef SWALE_FIBER_ASAN
  if (memory_ != nullptr) __asan_unpoison_memory_region(own_.stack, own_.stack_bytes);
#endif
  if (memory_ != nullptr) ::munmap(memory_, guard_bytes() + kStackBytes);
}

void Fiber::make_stack() {
  const size_t bytes = guard_bytes() + kStackBytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (::mprotect(memory, guard_bytes(), PROT_NONE) != 0) {
    ::munmap(memory, bytes);
    throw std::bad_alloc();
  }
  memory_ = static_cast<char*>(memory);
  own_.stack = memory_ + guard_bytes();
  own_.stack_bytes = kStackBytes;
  ::getcontext(&own_.context);
  own_.context.uc_stack.ss_sp = memory_ + guard_bytes();
  own_.context.uc_stack.ss_size = kStackBytes;
  own_.context.uc_link = nullptr;
  ::makecontext(&own_.context, &Fiber::run, 0);
#ifdef SWALE_FIBER_TSAN
  own_.thread = __tsan_create_fiber(0);
#endif
}

void Fiber::resume() {
  if (done_) return;
  if (memory_ == nullptr) {
    if (cancelled_) return;
    make_stack();
    starting = this;
  }
#ifdef SWALE_FIBER_TSAN
  simulation_.thread = __tsan_get_current_fiber();
#endif
  change(simulation_, own_);
}

bool Fiber::wait() {
  if (cancelled_) return false;
  change(own_, simulation_);
  return !cancelled_;
}

void Fiber::run() {
  Fiber& self = *std::exchange(starting, nullptr);
#ifdef SWALE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self.simulation_.stack, &self.simulation_.stack_bytes);
#endif
  self.body_(self);
  self.done_ = true;
  change(self.own_, self.simulation_, true);
}

// ends: nobody comes back to `from`.
void Fiber::change(Side& from, Side& to, [[maybe_unused]] bool ends) {
#ifdef SWALE_FIBER_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef SWALE_FIBER_TSAN
  __tsan_switch_to_fiber(to.thread, 0);
#endif
  ::swapcontext(&from.context, &to.context);
#ifdef SWALE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace swale::sim
