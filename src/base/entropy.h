// Random numbers that no seed reproduces: for ids that must differ between processes, jobs and hosts.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <random>

namespace swale {

inline uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace swale
