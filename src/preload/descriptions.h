// What this process has open on the trees of jobs, by descriptor.
//
// A Description is an open file, as the kernel's description is: descriptors that dup has made share one,
// with its offset. While this process is the only one that can hold it, the offset is here, and a write needs
// no call of the kernel. Before another process may come to it, give_back tells the kernel the offset, for
// good.
//
//   kHere ──give_back──► kGoing ──► kKernels          (the two highest bits of `place`)
//
// Memory: 4 KiB, 8 bytes a descriptor and 128 a description that were ever used, mapped at the first file
// that is ours. A process without one has none, and its calls look at one word.
//
// Threads: any, and signal handlers: no locks, no allocation. Who gives back blocks signals, so that whoever
// waits for it cannot have interrupted it.
// Invariants: (1) An entry of the table means that the descriptor is open, and leads to that description.
// (2) A description is used again when no descriptor and no call holds it. (3) A child of vfork changes
// nothing here: all was given back before it began.
// A child of fork finds its process's number wiped, and settles: it shares all that it has with its parent.
// Limits: descriptors below kDescriptorsMax, offsets up to kPlaceMax; beyond, files are the kernel's.
#pragma once

#include <atomic>
#include <cstdint>

#include "meta/index/types.h"

namespace swale::preload {

#ifndef SWALE_PRELOAD_DESCRIPTORS_MAX
#define SWALE_PRELOAD_DESCRIPTORS_MAX (1 << 17)
#endif
inline constexpr uint32_t kDescriptorsMax = SWALE_PRELOAD_DESCRIPTORS_MAX;
inline constexpr uint32_t kTreesMax = 4;  // logs of this process
inline constexpr uint64_t kPlaceMax = (uint64_t{1} << 62) - 1;
inline constexpr uint64_t kStateBits = ~kPlaceMax;
inline constexpr uint64_t kHere = 0;
inline constexpr uint64_t kGoing = uint64_t{1} << 62;
inline constexpr uint64_t kKernels = uint64_t{2} << 62;

// Whether writes of a description go to a log (log_right.h).
enum Right : uint32_t { kNotAsked, kBeingAsked, kRefused, kGranted };  // kGranted + number of the log

inline constexpr uint64_t kAlive = uint64_t{1} << 63;
inline constexpr uint64_t kDescriptor = uint64_t{1} << 32;  // a holder: one descriptor; 1: one call

struct alignas(64) Description {
  std::atomic<uint64_t> place;    // state | where the next read or write begins
  std::atomic<uint64_t> holders;  // kAlive | descriptors | calls
  std::atomic<uint32_t> right;
  std::atomic<uint32_t> next_free;  // its index + 1
  std::atomic<int> kept;            // a descriptor + 1 for calls that outlive those of the program
  std::atomic<bool> appends;        // each write goes to the end, which the kernel must know then
  std::atomic<uint8_t> access;      // O_ACCMODE, of one that was a placeholder
  std::atomic<uint32_t> ask_after;  // so many writes of this process through the mount
  std::atomic<uint32_t> light;      // 0, or it is a placeholder: the server's handle, or kGoingReal (light.h)
  std::atomic<uint32_t> light_kept;  // the handle of what was one, while writes may go by its grant
  std::atomic<bool> light_granted;   // it was asked for, as a placeholder
  uint64_t device;
  meta::FileId file;  // once it is granted

  // Reads (log_reads.h).
  std::atomic<uint64_t> map;           // by which it is read in logs; 0: none
  std::atomic<bool> reads;             // it may have one
  std::atomic<bool> map_was_used;      // since it was asked for
  std::atomic<uint8_t> read_waits;     // so many reads through the mount before it is asked for
  std::atomic<uint8_t> read_patience;  // what that was the last time
};
static_assert(sizeof(Description) == 128);

// Wiped in a child of fork.
struct Own {
  std::atomic<int> process;
  std::atomic<uint32_t> logs[kTreesMax];  // LogState
  std::atomic<uint32_t> light;            // LightState
};

struct Memory {
  alignas(4096) Own own;
  alignas(4096) std::atomic<uint64_t> free_descriptions;  // tag | index + 1
  std::atomic<uint32_t> used_descriptions;
  std::atomic<uint32_t> descriptors_end;  // none of ours from here on
  std::atomic<Description*> table[kDescriptorsMax];
  Description descriptions[kDescriptorsMax];
};

extern std::atomic<Memory*> memory;  // null: nothing was ours so far

void settle_after_fork(Memory& all) noexcept;
void finish(Memory& all, Description* description) noexcept;
// The held one was a placeholder, and is the mount's descriptor now, if that can be (light.h).
void make_real(Memory& all, Description& held, int fd) noexcept;
// The kernel is asked next.
inline void be_real(Description& held, int fd) noexcept {
  if (held.light.load(std::memory_order_acquire) != 0)
    make_real(*memory.load(std::memory_order_relaxed), held, fd);
}

// A call no longer holds it.
inline void leave(Memory& all, Description* description) noexcept {
  if (description->holders.fetch_sub(1, std::memory_order_acq_rel) == kAlive + 1) finish(all, description);
}

// The descriptor is not ours: so most calls find out, and go on to the next library at once.
inline bool is_foreign(int fd) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  return all == nullptr || static_cast<uint32_t>(fd) >= kDescriptorsMax ||
         all->table[fd].load(std::memory_order_relaxed) == nullptr;
}

// A description that stays for as long as this lives; none: the descriptor is not ours. A placeholder becomes
// real before, unless it is to be held as it is.
class Held {
 public:
  enum How { kReal, kAsItIs };
  explicit Held(int fd, How how = kReal) noexcept {
    if (!is_foreign(fd)) hold(*memory.load(std::memory_order_relaxed), fd, how);
  }
  ~Held() {
    if (held_ != nullptr) leave(*memory.load(std::memory_order_relaxed), held_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  explicit operator bool() const { return held_ != nullptr; }
  Description* operator->() const { return held_; }
  Description& operator*() const { return *held_; }

 private:
  void hold(Memory& all, int fd, How how) noexcept {
    if (all.own.process.load(std::memory_order_acquire) <= 0) settle_after_fork(all);
    while (Description* const found = all.table[fd].load(std::memory_order_acquire)) {
      found->holders.fetch_add(1, std::memory_order_acq_rel);
      held_ = found;
      if (all.table[fd].load(std::memory_order_acquire) == found) {
        if (how == kReal && found->light.load(std::memory_order_acquire) != 0) make_real(all, *found, fd);
        return;
      }
      held_ = nullptr;
      leave(all, found);
    }
  }

  Description* held_ = nullptr;
};

// The memory, made if need be; null: there is none.
Memory* make_memory() noexcept;
// Whether this is a child of vfork, which has its parent's memory, and descriptors of its own.
bool is_borrowed(const Memory& all) noexcept;

// A file has just been opened on `device`, by this process alone, and stands at 0. Null: no memory. It is
// held by one call, which must leave().
Description* begin_description(Memory& all, uint64_t device) noexcept;
// Descriptor `fd` leads to it, too.
void share(Memory& all, int fd, Description* description) noexcept;
// The descriptor is to be closed: it leads nowhere from now on. Calls that use it go on, by a descriptor of
// their own.
void let_go(Memory& all, int fd, Description& held) noexcept;

// From now on the offset is the kernel's.
void give_back(Description& held, int fd) noexcept;
void give_all_back() noexcept;
// The same; and what becomes of the descriptor is not seen here: it is the kernel's.
void leave_to_others(int fd) noexcept;
void leave_all_to_others() noexcept;

}  // namespace swale::preload
