// The number of seeds of a simulation test; SWALE_SIM_SEEDS multiplies it (make test-long).
#pragma once

#include <cstdint>
#include <cstdlib>

namespace swale::sim {

inline uint64_t seeds(uint64_t count) {
  const char* factor = std::getenv("SWALE_SIM_SEEDS");
  return count * (factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1);
}

}  // namespace swale::sim
