#include "preload/descriptions.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/light.h"
#include "preload/log_reads.h"
#include "preload/log_right.h"
#include "preload/next_calls.h"
#include "preload/signals_blocked.h"

namespace swale::preload {

constinit std::atomic<Memory*> memory = nullptr;

namespace {

constexpr int kSettling = -1;

uint32_t descriptors_of(uint64_t holders) { return static_cast<uint32_t>((holders & ~kAlive) >> 32); }
uint32_t calls_of(uint64_t holders) { return static_cast<uint32_t>(holders); }
int own_process() { return static_cast<int>(raw(SYS_getpid)); }

void recycle(Memory& all, Description* description) {
  if (const int kept = description->kept.exchange(0); kept != 0) raw(SYS_close, kept - 1);
  const auto index = static_cast<uint32_t>(description - all.descriptions) + 1;
  uint64_t head = all.free_descriptions.load(std::memory_order_acquire);
  uint64_t wanted = 0;
  do {
    description->next_free.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
    wanted = ((head >> 32) + 1) << 32 | index;
  } while (!all.free_descriptions.compare_exchange_weak(head, wanted));
}

Description* unused_description(Memory& all) {
  uint64_t head = all.free_descriptions.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(head) != 0) {
    Description* const first = &all.descriptions[static_cast<uint32_t>(head) - 1];
    const uint64_t rest = ((head >> 32) + 1) << 32 | first->next_free.load(std::memory_order_relaxed);
    if (all.free_descriptions.compare_exchange_weak(head, rest)) return first;
  }
  if (all.used_descriptions.load(std::memory_order_relaxed) >= kDescriptorsMax) return nullptr;
  const uint32_t index = all.used_descriptions.fetch_add(1, std::memory_order_relaxed);
  return index < kDescriptorsMax ? &all.descriptions[index] : nullptr;
}

// All of ours, each held while it is visited.
template <class Visit>
void for_each(Memory& all, const Visit& visit) {
  const uint32_t end = all.descriptors_end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end; ++i) {
    const int fd = static_cast<int>(i);
    if (const Held held(fd); held) visit(fd, *held);
  }
}

}  // namespace

Memory* make_memory() noexcept {
  Memory* found = memory.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long made = raw(SYS_mmap, nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, kFlags, -1, 0L);
  if (made == -1) return nullptr;
  auto* const mine = reinterpret_cast<Memory*>(made);
  mine->own.process.store(own_process());
  // Without the wipe a child of fork would take itself for its parent.
  if (raw(SYS_madvise, &mine->own, 4096L, MADV_WIPEONFORK) == 0 &&
      memory.compare_exchange_strong(found, mine))
    return mine;
  raw(SYS_munmap, mine, sizeof(Memory));
  return found;
}

bool is_borrowed(const Memory& all) noexcept {
  return all.own.process.load(std::memory_order_relaxed) != own_process();
}

// What it has inherited may be its parent's, too.
void settle_after_fork(Memory& all) noexcept {
  const int kept = errno;
  {
    const SignalsBlocked blocked;
    int nobody = 0;
    if (all.own.process.compare_exchange_strong(nobody, kSettling)) {
      drop_logs_of_parent();
      settle_reads_after_fork();
      const uint32_t end = all.descriptors_end.load(std::memory_order_acquire);
      for (uint32_t i = 0; i < end; ++i) {
        Description* const each = all.table[i].load(std::memory_order_acquire);
        if (each == nullptr) continue;
        // Its parent's, which no call that is seen here has left: not even the kernel's.
        if (each->light.exchange(0) != 0) all.table[i].store(nullptr);
        each->light_kept.store(0);
        each->place.store(kKernels);
        each->right.store(kNotAsked);
      }
      all.own.process.store(own_process(), std::memory_order_release);
    }
  }
  while (all.own.process.load(std::memory_order_acquire) == kSettling) raw(SYS_sched_yield);
  errno = kept;
}

Description* begin_description(Memory& all, uint64_t device) noexcept {
  Description* const made = unused_description(all);
  if (made == nullptr) return nullptr;
  made->place.store(kHere, std::memory_order_relaxed);
  made->right.store(kNotAsked, std::memory_order_relaxed);
  made->ask_after.store(0, std::memory_order_relaxed);
  made->appends.store(false, std::memory_order_relaxed);
  made->access.store(O_RDWR, std::memory_order_relaxed);
  made->light.store(0, std::memory_order_relaxed);
  made->light_kept.store(0, std::memory_order_relaxed);
  made->light_granted.store(false, std::memory_order_relaxed);
  made->device = device;
  made->file = {};
  made->map.store(0, std::memory_order_relaxed);
  made->reads.store(false, std::memory_order_relaxed);
  made->map_was_used.store(false, std::memory_order_relaxed);
  made->read_patience.store(0, std::memory_order_relaxed);
  made->holders.fetch_add(kAlive | 1, std::memory_order_acq_rel);
  return made;
}

void share(Memory& all, int fd, Description* description) noexcept {
  description->holders.fetch_add(kDescriptor, std::memory_order_acq_rel);
  const auto end = static_cast<uint32_t>(fd) + 1;
  uint32_t seen = all.descriptors_end.load(std::memory_order_relaxed);
  while (seen < end && !all.descriptors_end.compare_exchange_weak(seen, end)) {
  }
  Description* const before = all.table[fd].exchange(description, std::memory_order_acq_rel);
  if (before == nullptr) return;
  before->holders.fetch_add(1, std::memory_order_acq_rel);  // it was closed where nobody has seen it
  before->holders.fetch_sub(kDescriptor, std::memory_order_acq_rel);
  leave(all, before);
}

// Nobody holds it; somebody may who has read the table before, and lets it go at once.
void finish(Memory& all, Description* description) noexcept {
  uint64_t nobody = kAlive;
  if (!description->holders.compare_exchange_strong(nobody, 0)) return;
  const int kept = errno;
  if (const uint32_t handle = description->light.exchange(0); handle != 0) {
    light_placeholders.fetch_sub(1);
    close_light(handle);
  }
  if (const uint32_t handle = description->light_kept.exchange(0); handle != 0) close_light(handle);
  recycle(all, description);
  errno = kept;
}

void let_go(Memory& all, int fd, Description& held) noexcept {
  Description* expected = &held;
  if (!all.table[fd].compare_exchange_strong(expected, nullptr)) return;
  const uint64_t left = held.holders.fetch_sub(kDescriptor, std::memory_order_acq_rel) - kDescriptor;
  if (descriptors_of(left) > 0 || calls_of(left) <= 1) return;
  const long again = raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0L);
  if (again >= 0) held.kept.store(static_cast<int>(again) + 1);
}

void give_back(Description& held, int fd) noexcept {
  const int kept = errno;
  {
    const SignalsBlocked blocked;
    uint64_t seen = held.place.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t state = seen & kStateBits;
      if (state == kKernels) break;
      if (state == kGoing) {  // another thread, which nothing interrupts
        raw(SYS_sched_yield);
        seen = held.place.load(std::memory_order_acquire);
        continue;
      }
      if (!held.place.compare_exchange_weak(seen, seen | kGoing)) continue;
      raw(SYS_lseek, fd, static_cast<long>(seen), SEEK_SET);
      held.place.store(kKernels, std::memory_order_release);
      break;
    }
  }
  errno = kept;
}

void give_all_back() noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all == nullptr || is_borrowed(*all)) return;
  for_each(*all, [](int fd, Description& held) { give_back(held, fd); });
}

void leave_to_others(int fd) noexcept {
  const Held held(fd);
  if (!held) return;
  Memory& all = *memory.load(std::memory_order_relaxed);
  if (is_borrowed(all)) return;
  give_back(*held, fd);
  let_go(all, fd, *held);
}

void leave_all_to_others() noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all == nullptr || is_borrowed(*all)) return;
  for_each(*all, [&](int fd, Description& held) {
    give_back(held, fd);
    let_go(*all, fd, held);
  });
}

}  // namespace swale::preload
