// Arithmetic of runs: ends, counts, the block that holds a byte, parts of a run.
//
// A valid run is nested: the stride of each level is at least the span of the levels below it. So its blocks
// do not overlap, they ascend in the file in the order of their indices, and every question here takes
// O(levels) steps. Addresses are counted modulo 2^64: a run may descend in its log.
//
// Threads: pure functions. All but valid() require valid runs.
#pragma once

#include <cstdint>
#include <vector>

#include "meta/index/types.h"

namespace swale::meta {

inline constexpr uint64_t kRunBlocksMax = uint64_t{1} << 48;

// Bytes from the first byte of the run to the end of its last block, looking at the lowest `levels` levels.
inline uint64_t span_of(const Run& run, uint32_t levels) {
  uint64_t span = run.length;
  for (uint32_t l = 0; l < levels; ++l) span += (run.level[l].count - 1) * run.level[l].stride;
  return span;
}
inline uint64_t span_of(const Run& run) { return span_of(run, run.levels); }
inline uint64_t end_of(const Run& run) { return run.offset + span_of(run); }
inline uint64_t blocks_of(const Run& run) {
  uint64_t blocks = 1;
  for (uint32_t l = 0; l < run.levels; ++l) blocks *= run.level[l].count;
  return blocks;
}

// Bytes of all blocks.
inline uint64_t bytes_of(const Run& run) { return blocks_of(run) * run.length; }

// Whether `after` begins where `before` ends, in the file and in the log.
inline bool continues(const Extent& before, const Extent& after) {
  return before.offset + before.length == after.offset && before.place.log == after.place.log &&
         before.place.address + before.length == after.place.address;
}
// Appends a piece to those from index `first` on: joined with the last one if it continues that.
inline void append_joined(const Extent& piece, size_t first, std::vector<Extent>* out) {
  if (out->size() > first && continues(out->back(), piece)) {
    out->back().length += piece.length;
  } else {
    out->push_back(piece);
  }
}

// Whether the run is nested, not empty, ends at or before kOffsetEnd, and has at most kRunBlocksMax blocks.
// Everything that comes from outside passes here first.
bool valid(const Run& run);

inline Run run_of(const Extent& extent) {
  Run run;
  run.offset = extent.offset;
  run.length = extent.length;
  run.place = extent.place;
  return run;
}

// Block `index` of a run, counted in ascending file order.
Extent block_at(const Run& run, uint64_t index);

// Calls visit(const Extent&) for each block, in ascending file order. Costs no division a block.
template <class Visit>
void for_each_block(const Run& run, const Visit& visit) {
  const Level inner = run.levels > 0 ? run.level[0] : Level();
  const uint64_t blocks = blocks_of(run);
  for (uint64_t first = 0; first < blocks; first += inner.count) {
    Extent block = block_at(run, first);
    for (uint64_t i = 0; i < inner.count; ++i) {
      visit(static_cast<const Extent&>(block));
      block.offset += inner.stride;
      block.place.address += inner.address_stride;
    }
  }
}

// The number of blocks that end at or before `offset`: the index of the first block that has a byte at or
// after `offset`; blocks_of(run) if there is none.
uint64_t first_block_after(const Run& run, uint64_t offset);

// Whether a block of the run has a byte in [begin, end).
bool touches(const Run& run, uint64_t begin, uint64_t end);

// Appends the part of the run in [begin, end) as at most 2 * levels + 1 runs, in ascending order of their
// first bytes.
void clip(const Run& run, uint64_t begin, uint64_t end, std::vector<Run>* out);

// Removes levels that say nothing: a count of 1, and blocks that touch each other in the file and in the log.
void simplify(Run* run);

}  // namespace swale::meta
