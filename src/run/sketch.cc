#include "run/sketch.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace swale::run {
namespace {

// Sketches are made before the epoch's number of slices is known: with at least this many bits, so that every
// run can be cut into as many slices as there may be.
uint32_t built_bucket_bits(uint64_t records) {
  return std::clamp(natural_bucket_bits(records), kSliceBitsMax, kBucketBitsMax);
}

size_t words(uint64_t bits) { return static_cast<size_t>((bits + 63) / 64); }

}  // namespace

uint32_t natural_bucket_bits(uint64_t records) {
  if (records <= 1) return 0;
  const auto floor_bits = static_cast<uint32_t>(std::bit_width(records)) - 1;
  // Round up from sqrt(2) * 2^floor_bits on; records < 2^31 in all uses, so the square fits.
  return records * records >= uint64_t{2} << 2 * floor_bits ? floor_bits + 1 : floor_bits;
}

size_t sketch_memory_bytes(size_t records, size_t blocks) {
  const uint64_t bucket_words = words(records + (uint64_t{1} << built_bucket_bits(records)));
  return sizeof(RunSketch) + (bucket_words + words(records + blocks)) * sizeof(uint64_t) + records;
}

SketchBuilder::SketchBuilder(RunSketch* sketch) {
  assert(sketch->records >= 1 && sketch->records <= kRunRecordsMax);
  const uint32_t bucket_bits = built_bucket_bits(sketch->records);
  sketch->bucket_bits = static_cast<uint8_t>(bucket_bits);
  sketch->buckets.assign(words(sketch->records + (uint64_t{1} << bucket_bits)), 0);
  sketch->remainders.assign(sketch->records, 0);
  if (sketch->kind == RunKind::kVariable)
    sketch->ends.assign(words(uint64_t{sketch->records} + sketch->blocks), 0);
  buckets_ = sketch->buckets.data();
  ends_ = sketch->ends.data();
  remainders_ = sketch->remainders.data();
  shift_ = 64 - bucket_bits - kRemainderBits;
}

}  // namespace swale::run
