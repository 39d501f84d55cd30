#include "meta/index/lattice.h"

#include <algorithm>

#include "base/uint128.h"

namespace swale::meta {

bool valid(const Run& run) {
  if (run.length == 0 || run.offset >= kOffsetEnd || run.levels > kRunLevels) return false;
  const uint64_t space = kOffsetEnd - run.offset;
  if (run.length > space) return false;
  uint64_t span = run.length, blocks = 1;
  for (uint32_t l = 0; l < run.levels; ++l) {
    const Level& level = run.level[l];
    if (level.count < 2 || level.stride < span) return false;
    const Uint128 grown = static_cast<Uint128>(level.count - 1) * level.stride + span;
    if (grown > space || level.count > kRunBlocksMax / blocks) return false;
    span = static_cast<uint64_t>(grown);
    blocks *= level.count;
  }
  return true;
}

Extent block_at(const Run& run, uint64_t index) {
  Extent block{run.offset, run.length, run.place};
  for (uint32_t l = 0; l < run.levels; ++l) {
    const Level& level = run.level[l];
    const uint64_t i = index % level.count;
    index /= level.count;
    block.offset += i * level.stride;
    block.place.address += i * level.address_stride;
  }
  return block;
}

uint64_t first_block_after(const Run& run, uint64_t offset) {
  if (offset <= run.offset) return 0;
  uint64_t rest = offset - run.offset, index = 0, blocks = blocks_of(run);
  for (uint32_t l = run.levels; l-- > 0;) {
    const Level& level = run.level[l];
    blocks /= level.count;
    const uint64_t i = rest / level.stride;
    if (i >= level.count) return index + level.count * blocks;
    index += i * blocks;
    rest -= i * level.stride;
    if (rest >= span_of(run, l)) return index + blocks;  // in the gap after item i
  }
  return rest < run.length ? index : index + 1;
}

bool touches(const Run& run, uint64_t begin, uint64_t end) {
  const uint64_t first = first_block_after(run, begin);
  return first < blocks_of(run) && block_at(run, first).offset < end;
}

namespace {

// The lowest `levels` levels of the run, the part in [begin, end).
void clip_levels(Run part, uint32_t levels, uint64_t begin, uint64_t end, std::vector<Run>* out) {
  part.levels = levels;
  for (uint32_t l = levels; l < kRunLevels; ++l) part.level[l] = {};
  const uint64_t part_end = end_of(part);
  if (begin >= part_end || end <= part.offset) return;
  if (begin <= part.offset && part_end <= end) {
    out->push_back(part);
    return;
  }
  if (levels == 0) {
    const uint64_t from = std::max(begin, part.offset);
    part.length = std::min(end, part_end) - from;
    part.place.address += from - part.offset;
    part.offset = from;
    out->push_back(part);
    return;
  }
  const Level level = part.level[levels - 1];
  const uint64_t inner = span_of(part, levels - 1);
  // Items [first, last) of this level are whole; the ones beside them may be cut.
  const uint64_t first = begin <= part.offset
                             ? 0
                             : std::min(level.count, (begin - part.offset + level.stride - 1) / level.stride);
  uint64_t last = 0;
  if (end >= part.offset + inner)
    last = std::min(level.count, (end - part.offset - inner) / level.stride + 1);
  const auto item = [&](uint64_t i) {
    Run one = part;
    one.offset += i * level.stride;
    one.place.address += i * level.address_stride;
    return one;
  };
  if (first > 0) clip_levels(item(first - 1), levels - 1, begin, end, out);
  if (first < last) {
    Run whole = item(first);
    whole.level[levels - 1].count = last - first;
    if (last - first == 1) whole.level[levels - 1] = {}, whole.levels = levels - 1;
    out->push_back(whole);
  }
  const uint64_t next = std::max(first, last);
  if (next < level.count) clip_levels(item(next), levels - 1, begin, end, out);
}

}  // namespace

void clip(const Run& run, uint64_t begin, uint64_t end, std::vector<Run>* out) {
  if (begin < end) clip_levels(run, run.levels, begin, end, out);
}

void simplify(Run* run) {
  uint32_t levels = 0;
  for (uint32_t l = 0; l < run->levels; ++l) {
    const Level level = run->level[l];
    if (level.count == 1) continue;
    if (levels == 0 && level.stride == run->length && level.address_stride == run->length) {
      run->length *= level.count;
      continue;
    }
    if (levels > 0) {  // continues the level below it
      Level& below = run->level[levels - 1];
      if (level.stride == below.stride * below.count &&
          level.address_stride == below.address_stride * below.count) {
        below.count *= level.count;
        continue;
      }
    }
    run->level[levels++] = level;
  }
  for (uint32_t l = levels; l < kRunLevels; ++l) run->level[l] = {};
  run->levels = levels;
}

}  // namespace swale::meta
