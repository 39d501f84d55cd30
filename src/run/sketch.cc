#include "run/sketch.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>

namespace swale::run {
namespace {

// Sketches are made before the epoch's number of slices is known. So they have at least this many bits, which
// allow to cut every run into the largest number of slices.
uint32_t built_bucket_bits(uint64_t records) {
  return std::clamp(natural_bucket_bits(records), kSliceBitsMax, kBucketBitsMax);
}

size_t words(uint64_t bits) { return static_cast<size_t>((bits + 63) / 64); }

}  // namespace

uint32_t natural_bucket_bits(uint64_t records) {
  if (records <= 1) return 0;
  const auto floor_bits = static_cast<uint32_t>(std::bit_width(records)) - 1;
  return records * 5 >= uint64_t{8} << floor_bits ? floor_bits + 1 : floor_bits;
}

size_t sketch_memory_bytes(size_t records, size_t blocks, RunKind kind, bool with_tails) {
  const size_t bucket_words = words(records + (uint64_t{1} << built_bucket_bits(records)));
  const size_t end_words = is_stream(kind) ? words(records + blocks) : 0;
  const size_t record_bytes = with_tails ? 2 : 1;
  return round_up((bucket_words + end_words) * sizeof(uint64_t) + records * record_bytes, 64);
}

Result<SketchArena> SketchArena::create(size_t bytes) {
  SWALE_ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(bytes, HugePages::kAdvise));
  return SketchArena(std::move(memory));
}

void SketchArena::clear() {
  free_ = {{0, memory_.size()}};
  used_ = 0;
}

SketchArena::Room::const_iterator SketchArena::room_for(size_t bytes) const {
  return std::find_if(free_.begin(), free_.end(), [bytes](const auto& room) { return room.second >= bytes; });
}

MutableBytes SketchArena::allocate(size_t bytes) {
  assert(fits(bytes) && bytes % 64 == 0);
  const auto room = room_for(bytes);
  const auto [offset, room_bytes] = *room;
  free_.erase(room);
  if (room_bytes > bytes) free_[offset + bytes] = room_bytes - bytes;
  used_ += bytes;
  return {memory_.data() + offset, bytes};
}

void SketchArena::release(MutableBytes memory) {
  used_ -= memory.size();
  auto room = free_.emplace(memory.data() - memory_.data(), memory.size()).first;
  if (const auto next = std::next(room); next != free_.end() && room->first + room->second == next->first) {
    room->second += next->second;
    free_.erase(next);
  }
  if (room == free_.begin()) return;
  if (const auto before = std::prev(room); before->first + before->second == room->first) {
    before->second += room->second;
    free_.erase(room);
  }
}

SketchBuilder::SketchBuilder(RunSketch* sketch, SketchArena& arena, bool with_tails) {
  assert(sketch->records >= 1 && sketch->records <= kRunRecordsMax);
  const uint32_t bucket_bits = built_bucket_bits(sketch->records);
  sketch->bucket_bits = static_cast<uint8_t>(bucket_bits);
  const size_t bucket_words = words(sketch->records + (uint64_t{1} << bucket_bits));
  const size_t end_words = is_stream(sketch->kind) ? words(uint64_t{sketch->records} + sketch->blocks) : 0;
  sketch->memory =
      arena.allocate(sketch_memory_bytes(sketch->records, sketch->blocks, sketch->kind, with_tails));
  auto* const first_word = reinterpret_cast<uint64_t*>(sketch->memory.data());
  sketch->buckets = {first_word, bucket_words};
  sketch->ends = {first_word + bucket_words, end_words};
  sketch->remainders = {reinterpret_cast<uint8_t*>(first_word + bucket_words + end_words), sketch->records};
  if (with_tails) {
    sketch->tails = {sketch->remainders.data() + sketch->records, sketch->records};
    tails_ = sketch->tails.data();
  }
  std::memset(first_word, 0, (bucket_words + end_words) * sizeof(uint64_t));
  buckets_ = sketch->buckets.data();
  ends_ = sketch->ends.data();
  remainders_ = sketch->remainders.data();
  shift_ = 64 - bucket_bits - kRemainderBits;
}

}  // namespace swale::run
