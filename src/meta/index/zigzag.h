// Differences in two's complement as numbers that are small where the difference is, of either sign: for
// varints.
#pragma once

#include <cstdint>

namespace swale::meta {

constexpr uint64_t zigzag(uint64_t difference) { return difference << 1 ^ (0 - (difference >> 63)); }
constexpr uint64_t unzigzag(uint64_t number) { return number >> 1 ^ (0 - (number & 1)); }

}  // namespace swale::meta
