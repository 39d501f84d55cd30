// What this processor can do beyond the architecture's baseline, for functions that are compiled twice.
//
// Where a faster version pays, the function is written once, as an always-inline template body, and compiled
// into two functions, one of them marked SWALE_TARGET_POPCNT; the caller chooses by cpu_has_popcnt(). Both
// return the same results, and both are tested.
// Threads: pure functions.
#pragma once

#if defined(__x86_64__)
#define SWALE_TARGET_POPCNT __attribute__((target("popcnt")))
#else
#define SWALE_TARGET_POPCNT
#endif

namespace swale {

// Whether the version marked SWALE_TARGET_POPCNT runs here: one load, no call.
inline bool cpu_has_popcnt() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("popcnt") != 0;
#else
  return true;  // the mark is empty
#endif
}

// For loops that poll: the other thread of the core goes faster meanwhile.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Prefetches a cache line that is about to be written; another core may own it. On baseline x86,
// __builtin_prefetch would fetch it for reading. Does nothing on processors without the instruction (Intel
// before 2014).
inline void prefetch_for_write(const char* at) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*at));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace swale
