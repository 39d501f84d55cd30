// One column of a block as base + slope * row + gcd * bits[row], bit-packed: any row is read by two loads and
// a product, without its neighbours. A regular column (equal steps) takes no bits at all.
//
// bits[] have `width` bits each, at most 57 (so that one load of eight bytes holds one), or exactly 64.
// Threads: values. Arithmetic is modulo 2^64.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/coding.h"

namespace swale::meta {

struct ColumnPlan {
  uint64_t base = 0;
  uint64_t slope = 0;
  uint64_t gcd = 1;
  uint32_t width = 0;

  size_t data_bytes(size_t rows) const { return (rows * width + 7) / 8; }
  size_t header_bytes() const;
};

inline constexpr uint32_t kColumnWidthMax = 57;
// How many bytes after a column's data may be loaded (not used).
inline constexpr size_t kColumnSlackBytes = 8;

// The plan with the fewest bits among: no slope, and the mean slope if `sloped`.
ColumnPlan plan_column(std::span<const uint64_t> values, bool sloped);
void append_column_header(const ColumnPlan& plan, std::string* out);
void append_column_data(const ColumnPlan& plan, std::span<const uint64_t> values, std::string* out);

// A column whose data somebody else owns, followed by kColumnSlackBytes of memory.
struct ColumnView {
  const char* data = nullptr;
  uint64_t base = 0;
  uint64_t slope = 0;
  uint64_t gcd = 1;
  uint64_t mask = 0;
  uint32_t width = 0;

  uint64_t operator[](size_t row) const {
    uint64_t value = base + slope * row;
    if (width != 0) {
      const uint64_t bit = row * width;
      value += (get_u64(data + (bit >> 3)) >> (bit & 7) & mask) * gcd;
    }
    return value;
  }
};

// False if the header is malformed.
bool read_column_header(Decoder* decoder, ColumnView* out);

}  // namespace swale::meta
