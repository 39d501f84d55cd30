// Counts what operator new has given out and not got back. A program has it from the library
// swale_bench_counted_new.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace swale::bench {

// Of every allocation in C++ since the program began. Those in C (UCX's own) are not among them.
struct Allocations {
  uint64_t bytes = 0;  // now
  uint64_t peak_bytes = 0;
};
Allocations allocations();
// The peak begins anew, with what is allocated now, which it returns.
uint64_t reset_peak();

}  // namespace swale::bench
