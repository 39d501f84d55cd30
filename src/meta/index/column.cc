#include "meta/index/column.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "meta/index/zigzag.h"

namespace swale::meta {
namespace {

// The inverse of an odd number modulo 2^64, by Newton's iteration.
uint64_t inverse_of(uint64_t odd) {
  uint64_t x = odd * 3 ^ 2;
  for (int i = 0; i < 4; ++i) x *= 2 - odd * x;
  return x;
}

// Division by gcd of numbers that it divides, without dividing.
struct ExactDivision {
  explicit ExactDivision(uint64_t gcd)
      : shift(static_cast<uint32_t>(std::countr_zero(gcd))), inverse(inverse_of(gcd >> shift)) {}
  uint64_t operator()(uint64_t value) const { return (value >> shift) * inverse; }
  uint32_t shift;
  uint64_t inverse;
};

// The greatest number that divides all differences to the first value: powers of two exactly; odd factors if
// those of the first few values hold for all (BTIO's lines are multiples of 40 bytes).
uint64_t gcd_of(std::span<const uint64_t> values, uint64_t differences) {
  constexpr size_t kSampled = 16;
  const auto shift = static_cast<uint32_t>(std::countr_zero(differences));
  uint64_t odd = 0;
  for (size_t i = 1; i < std::min(values.size(), kSampled); ++i) {
    const auto difference = static_cast<int64_t>(values[i] - values[0]);
    odd = std::gcd(
        odd,
        (difference < 0 ? -static_cast<uint64_t>(difference) : static_cast<uint64_t>(difference)) >> shift);
    if (odd == 1) break;
  }
  if (odd != 0) odd >>= std::countr_zero(odd);
  if (odd <= 1) return uint64_t{1} << shift;
  const uint64_t inverse = inverse_of(odd);
  const uint64_t quotient_max = ~uint64_t{0} / odd;
  for (const uint64_t value : values) {
    const auto difference = static_cast<int64_t>(value - values[0]);
    const uint64_t size =
        (difference < 0 ? -static_cast<uint64_t>(difference) : static_cast<uint64_t>(difference)) >> shift;
    if (size * inverse > quotient_max) return uint64_t{1} << shift;
  }
  return odd << shift;
}

struct Extremes {
  int64_t least = 0;
  int64_t greatest = 0;
  uint64_t spread() const { return static_cast<uint64_t>(greatest) - static_cast<uint64_t>(least); }
};

Extremes extremes_of(std::span<const uint64_t> values, uint64_t slope) {
  Extremes found;
  uint64_t line = values[0];
  for (const uint64_t value : values) {
    const auto residue = static_cast<int64_t>(value - line);
    found.least = std::min(found.least, residue);
    found.greatest = std::max(found.greatest, residue);
    line += slope;
  }
  return found;
}

}  // namespace

size_t ColumnPlan::header_bytes() const {
  return 1 + varint_bytes(base) + varint_bytes(zigzag(slope)) + (width == 0 ? 0 : varint_bytes(gcd));
}

ColumnPlan plan_column(std::span<const uint64_t> values, bool sloped) {
  ColumnPlan plan;
  plan.base = values[0];
  uint64_t differences = 0;
  for (const uint64_t value : values) differences |= value - values[0];
  if (differences == 0) return plan;
  plan.gcd = gcd_of(values, differences);
  const Extremes flat = extremes_of(values, 0);
  Extremes best = flat;
  if (sloped) {
    const auto rise = static_cast<int64_t>(values.back() - values.front());
    const int64_t mean = rise / static_cast<int64_t>(values.size() - 1);
    const auto step = static_cast<int64_t>(plan.gcd);
    const auto slope = step > 0 ? static_cast<uint64_t>(mean / step * step) : 0;
    if (slope != 0) {
      const Extremes tilted = extremes_of(values, slope);
      if (tilted.spread() < flat.spread()) best = tilted, plan.slope = slope;
    }
  }
  plan.width = static_cast<uint32_t>(std::bit_width(best.spread() / plan.gcd));
  plan.base = values[0] + static_cast<uint64_t>(best.least);
  if (plan.width > kColumnWidthMax) plan = {.base = 0, .slope = 0, .gcd = 1, .width = 64};
  return plan;
}

void append_column_header(const ColumnPlan& plan, std::string* out) {
  append_u8(out, static_cast<uint8_t>(plan.width));
  append_varint(out, plan.base);
  append_varint(out, zigzag(plan.slope));
  if (plan.width != 0) append_varint(out, plan.gcd);
}

void append_column_data(const ColumnPlan& plan, std::span<const uint64_t> values, std::string* out) {
  if (plan.width == 0) return;
  const size_t begin = out->size();
  const size_t bytes = plan.data_bytes(values.size());
  out->resize(begin + bytes + 8);
  char* at = out->data() + begin;
  const ExactDivision divide(plan.gcd);
  uint64_t line = plan.base, word = 0;
  uint32_t filled = 0;
  for (const uint64_t value : values) {
    const uint64_t bits = divide(value - line);
    line += plan.slope;
    word |= bits << filled;
    filled += plan.width;
    if (filled >= 64) {
      put_u64(at, word);
      at += 8;
      filled -= 64;
      word = filled == 0 ? 0 : bits >> (plan.width - filled);
    }
  }
  put_u64(at, word);
  out->resize(begin + bytes);
}

bool read_column_header(Decoder* decoder, ColumnView* out) {
  out->width = decoder->u8();
  out->base = decoder->varint64();
  out->slope = unzigzag(decoder->varint64());
  out->gcd = out->width == 0 ? 1 : decoder->varint64();
  out->mask = out->width == 64 ? ~uint64_t{0} : (uint64_t{1} << (out->width & 63)) - 1;
  return decoder->ok() && (out->width <= kColumnWidthMax || out->width == 64);
}

}  // namespace swale::meta
