// Bytes: views of memory that they do not own, and the one conversion that C++ makes awkward.
// A `Bytes` is any byte string (keys, values, blocks), not text. Copy the view freely; the memory must
// outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace swale {

using Bytes = std::string_view;
using MutableBytes = std::span<char>;

inline Bytes view(MutableBytes bytes) { return {bytes.data(), bytes.size()}; }

constexpr uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kGiB = 1024 * kMiB;

}  // namespace swale
