// Counts what malloc and its relatives have given out, and writable mappings: of the whole test program, its
// libraries too. Link counted_malloc.cc. Not among them: stacks, and what the kernel holds for files.
// Threads: any.
#pragma once

#include <cstdint>

namespace swale::memory_test {

struct HeldMemory {
  uint64_t bytes = 0;  // now
  uint64_t peak_bytes = 0;
};
HeldMemory held_memory();
// The peak begins anew, with what is held now, which it returns.
uint64_t restart_peak();

}  // namespace swale::memory_test
