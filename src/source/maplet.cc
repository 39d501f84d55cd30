#include "source/maplet.h"

#include <cassert>

#include "source/bit_stream.h"
#include "source/ribbon.h"

namespace swale::source {
namespace {

struct Place {
  uint64_t bucket;
  uint64_t remainder;
};

Place place_of(uint64_t fraction, const MapletShape& shape) {
  const auto product = static_cast<Uint128>(fraction) * shape.entries;
  const auto rest = static_cast<uint64_t>(product);
  return {static_cast<uint64_t>(product >> 64),
          shape.remainder_bits == 0 ? 0 : rest >> (64 - shape.remainder_bits)};
}

}  // namespace

void append_maplet(std::span<const MapletEntry> entries, const MapletShape& shape, std::string* out) {
  assert(entries.size() == shape.entries);
  out->reserve(out->size() + shape.bytes() + kSlackBytes);
  BitWriter buckets(out);
  uint64_t bucket = 0;
  for (const MapletEntry& entry : entries) {
    for (const uint64_t own = place_of(entry.fraction, shape).bucket; bucket < own; ++bucket)
      buckets.put(0, 1);
    buckets.put(1, 1);
  }
  for (; bucket < shape.entries; ++bucket) buckets.put(0, 1);
  buckets.finish();
  BitWriter writer(out);
  for (const MapletEntry& entry : entries) {
    writer.put(place_of(entry.fraction, shape).remainder, shape.remainder_bits);
    writer.put(entry.source, shape.source_bits);
  }
  writer.finish();
}

bool MapletView::open(const MapletShape& shape, const char* bytes) {
  shape_ = shape;
  buckets_ = BitSpan(bytes, uint64_t{shape.entries} * 2);
  entries_ = bytes + shape.bucket_bytes();
  starts_.clear();
  uint64_t ones = 0;
  for (uint64_t bit = 0; bit < buckets_.size(); bit += 64) ones += count_ones(buckets_.load(bit));
  if (ones != shape.entries) return false;
  uint64_t bit = 0;
  for (uint64_t bucket = 0; bucket < shape.entries; bucket += kStride) {
    starts_.push_back(static_cast<uint32_t>(bit));
    bit = buckets_.after_zeros(bit, kStride);
  }
  return true;
}

void MapletView::candidates(uint64_t fraction, std::vector<uint32_t>* out) const {
  if (shape_.entries == 0) return;
  const Place place = place_of(fraction, shape_);
  uint64_t bit = buckets_.after_zeros(starts_[place.bucket / kStride], place.bucket % kStride);
  const uint32_t width = shape_.remainder_bits + shape_.source_bits;
  for (; (buckets_.load(bit) & 1) != 0; ++bit) {
    const uint64_t entry = load_bits(entries_, (bit - place.bucket) * width, width);
    if ((entry & low_bits(shape_.remainder_bits)) != place.remainder) continue;
    out->push_back(static_cast<uint32_t>(entry >> shape_.remainder_bits));
  }
}

}  // namespace swale::source
