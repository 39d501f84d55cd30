// Counts what operator new has given out and not got back, for programs of one thread. Link counted_new.cc into the program.
#pragma once

#include <cstdint>

namespace swale::bench {

// Returns what is allocated now; the maximum begins here.
uint64_t begin_counting_allocations();
uint64_t allocated_bytes_max();

}  // namespace swale::bench
