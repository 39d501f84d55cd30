#include "imd/format/series_columns.h"

#include <array>
#include <cassert>
#include <cstring>
#include <optional>

#include "base/coding.h"
#include "imd/format/series.h"

namespace swale::imd {
namespace {

constexpr size_t kNumberBytes = sizeof(uint32_t);
constexpr uint32_t kCountMin = 2;

// Values of one size, which lie at the end of a series.
struct Values {
  size_t offset = 0;
  uint32_t count = 0;
  size_t value_bytes = 0;
};

// None: a series of another kind, or no series.
std::optional<Values> values_of(Bytes series) {
  const char* at = series.data();
  const char* const end = at + series.size();
  if (at == end) return std::nullopt;
  const auto flags = static_cast<uint8_t>(*at++);
  uint32_t number = 0;
  uint32_t count = 0;
  if ((flags & kOneSize) == 0) return std::nullopt;
  if ((at = get_varint32(at, end, &number)) == nullptr) return std::nullopt;
  if ((at = get_varint32(at, end, &count)) == nullptr || count < kCountMin) return std::nullopt;
  for (uint32_t i = 1; i < count && (flags & kNextEpochs) == 0; ++i) {
    if ((at = get_varint32(at, end, &number)) == nullptr) return std::nullopt;
  }
  if ((at = get_varint32(at, end, &number)) == nullptr) return std::nullopt;
  const size_t value_bytes = number >> 2;
  const auto bytes = static_cast<uint64_t>(end - at);
  if (value_bytes == 0 || value_bytes * uint64_t{count} != bytes) return std::nullopt;
  return Values{series.size() - bytes, count, value_bytes};
}

// Small numbers of either sign become small numbers.
uint32_t zigzag(uint32_t difference) { return difference << 1 ^ (0 - (difference >> 31)); }
uint32_t restored(uint32_t zigzagged) { return zigzagged >> 1 ^ (0 - (zigzagged & 1)); }

// Both ways in one pass over each column: a pass that subtracts and one that transposes take twice as long.
void put_columns(const char* rows, const Values& values, char* out) {
  const size_t count = values.count;
  size_t offset = 0;  // of the number, then of the byte, in a value
  for (; offset + kNumberBytes <= values.value_bytes; offset += kNumberBytes) {
    char* const column = out + offset * count;
    const char* row = rows + offset;
    uint32_t before = 0;
    for (size_t i = 0; i < count; ++i, row += values.value_bytes) {
      const uint32_t number = get_u32(row);
      const uint32_t coded = i == 0 ? number : zigzag(number - before);
      before = number;
      column[i] = static_cast<char>(coded);
      column[count + i] = static_cast<char>(coded >> 8);
      column[2 * count + i] = static_cast<char>(coded >> 16);
      column[3 * count + i] = static_cast<char>(coded >> 24);
    }
  }
  for (; offset < values.value_bytes; ++offset) {
    for (size_t i = 0; i < count; ++i) out[offset * count + i] = rows[i * values.value_bytes + offset];
  }
}

void put_rows(const char* columns, const Values& values, char* out) {
  const size_t count = values.count;
  size_t offset = 0;
  for (; offset + kNumberBytes <= values.value_bytes; offset += kNumberBytes) {
    const auto* const column = reinterpret_cast<const uint8_t*>(columns + offset * count);
    char* row = out + offset;
    uint32_t number = 0;
    for (size_t i = 0; i < count; ++i, row += values.value_bytes) {
      const uint32_t coded = column[i] | uint32_t{column[count + i]} << 8 |
                             uint32_t{column[2 * count + i]} << 16 | uint32_t{column[3 * count + i]} << 24;
      number = i == 0 ? coded : number + restored(coded);
      put_u32(row, number);
    }
  }
  for (; offset < values.value_bytes; ++offset) {
    for (size_t i = 0; i < count; ++i) out[i * values.value_bytes + offset] = columns[offset * count + i];
  }
}

}  // namespace

void make_columns(MutableBytes series) {
  assert(series.size() <= kSeriesBytesMax);
  const std::optional<Values> values = values_of(view(series));
  if (!values) return;
  const MutableBytes bytes = series.subspan(values->offset);
  std::array<char, kSeriesBytesMax> rows;
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  put_columns(rows.data(), *values, bytes.data());
  series[0] = static_cast<char>(series[0] | kColumns);
}

Bytes make_rows(Bytes series, MutableBytes out) {
  const std::optional<Values> values = values_of(series);
  if (!values || (series[0] & kColumns) == 0 || series.size() > out.size()) return {};
  std::memcpy(out.data(), series.data(), values->offset);
  out[0] = static_cast<char>(out[0] & ~kColumns);
  put_rows(series.data() + values->offset, *values, out.data() + values->offset);
  return view(out.subspan(0, series.size()));
}

}  // namespace swale::imd
