#include "meta/index/run_detector.h"

#include <algorithm>

#include "meta/index/lattice.h"

namespace swale::meta {
namespace {

bool same_shape(const Run& a, const Run& b) {
  if (a.length != b.length || a.place.log != b.place.log || a.levels != b.levels) return false;
  for (uint32_t i = 0; i < a.levels; ++i) {
    if (a.level[i] != b.level[i]) return false;
  }
  return true;
}

void remove_level(Run* run, uint32_t at) {
  for (uint32_t i = at; i + 1 < run->levels; ++i) run->level[i] = run->level[i + 1];
  run->level[--run->levels] = {};
}

// Levels that are one: blocks without gaps between them, or a level that continues the one below.
void join_levels(Run* run) {
  while (run->levels > 0 && run->level[0].stride == run->length &&
         run->level[0].address_stride == run->length) {
    run->length *= run->level[0].count;
    remove_level(run, 0);
  }
  for (uint32_t i = 0; i + 1 < run->levels;) {
    Level& low = run->level[i];
    const Level& high = run->level[i + 1];
    if (high.stride == low.count * low.stride && high.address_stride == low.count * low.address_stride) {
      low.count *= high.count;
      remove_level(run, i + 1);
    } else {
      ++i;
    }
  }
}

// With the new level at its place among the others, by stride: how many items until the level above is
// reached. Fewer than 2: the blocks would overlap, or are too entangled to be a valid run.
uint64_t items_that_fit(const Run& item, uint64_t stride) {
  uint64_t below = item.length;
  uint32_t at = 0;
  for (; at < item.levels && item.level[at].stride <= stride; ++at) {
    below += (item.level[at].count - 1) * item.level[at].stride;
  }
  if (stride < below) return 0;
  uint64_t fit = kOffsetEnd / stride;  // the input's ends bound it before
  uint64_t above = below;              // span of what is below level `at`, but for the new level
  for (; at < item.levels; ++at) {
    const Level& level = item.level[at];
    if (level.stride < above) return 0;
    fit = std::min(fit, (level.stride - above) / stride + 1);
    above += (level.count - 1) * level.stride;
  }
  return fit;
}

// The run with one level more, at its place among the others.
Run with_level(Run run, const Level& level) {
  uint32_t at = run.levels++;
  for (; at > 0 && run.level[at - 1].stride > level.stride; --at) run.level[at] = run.level[at - 1];
  run.level[at] = level;
  join_levels(&run);
  return run;
}

// Entries with and without a place. The place of a range is its offset, in log 0: where the offset is as
// expected, so is the place.
const Extent& entry_of(const Extent& extent) { return extent; }
Extent entry_of(const ByteRange& range) { return {range.offset, range.length, {0, range.offset}}; }
bool begins_at(const Extent& extent, uint64_t offset, uint64_t address, LogId log) {
  return extent.offset == offset && extent.place.address == address && extent.place.log == log;
}
bool begins_at(const ByteRange& range, uint64_t offset, uint64_t, LogId) { return range.offset == offset; }

}  // namespace

// How many of the entries are the next items of the first stage's pattern after `last_`, which is one itself.
template <class Item>
size_t RunDetector::take_items(std::span<const Item> entries) {
  Group& group = groups_[0];
  const uint64_t stride = group.stride, address_stride = group.address_stride, length = last_.length;
  const LogId log = last_.place.log;
  uint64_t offset = last_.offset + stride, address = last_.place.address + address_stride;
  size_t taken = 0;
  for (; taken < entries.size(); ++taken) {
    const Item& entry = entries[taken];
    if (!begins_at(entry, offset, address, log) || entry.length != length) break;
    offset += stride;
    address += address_stride;
  }
  group.items += taken;
  last_.offset = offset - stride;
  last_.place.address = address - address_stride;
  group.next_offset = last_.offset;
  group.next_address = last_.place.address;
  return taken;
}

// How many of the entries continue `last_`, which grows by them. A piece that continues the pattern as it is
// stays alone: the next pattern may begin where it ends.
template <class Item>
size_t RunDetector::take_pieces(std::span<const Item> entries) {
  // Most entries without a pattern end here, before what the others need is computed.
  if (entries.empty() || entries[0].offset != last_.offset + last_.length) return 0;
  const Group& group = groups_[0];
  const bool on_pattern = group.items >= 2 && last_.offset == group.next_offset &&
                          last_.place.address == group.next_address &&
                          last_.place.log == group.item.place.log;
  const uint64_t alone = on_pattern ? group.item.length : 0;
  const uint64_t to_address = last_.place.address - last_.offset;
  uint64_t end = last_.offset + last_.length;
  size_t taken = 0;
  for (; taken < entries.size() && end - last_.offset != alone; ++taken) {
    const Item& entry = entries[taken];
    if (!begins_at(entry, end, end + to_address, last_.place.log)) break;
    end += entry.length;
  }
  last_.length = end - last_.offset;
  return taken;
}

template <class Item>
void RunDetector::add_entries(std::span<const Item> entries, DetectedBatch* out) {
  if (entries.empty()) return;
  if (!any_) {
    any_ = true;
    last_ = entry_of(entries[0]);
    entries = entries.subspan(1);
  }
  for (;;) {
    if (continues_pattern(last_)) entries = entries.subspan(take_items(entries));
    entries = entries.subspan(take_pieces(entries));
    if (entries.empty()) return;
    add_extent(last_, out);
    last_ = entry_of(entries[0]);
    entries = entries.subspan(1);
  }
}

void RunDetector::add(std::span<const Extent> entries, DetectedBatch* out) { add_entries(entries, out); }
void RunDetector::add(std::span<const ByteRange> ranges, DetectedBatch* out) { add_entries(ranges, out); }

void RunDetector::add_extent(const Extent& extent, DetectedBatch* out) {
  Group& group = groups_[0];
  if (group.items >= 2) {
    if (continues_pattern(extent)) {
      ++group.items;
      group.next_offset += group.stride;
      group.next_address += group.address_stride;
      return;
    }
    flush<0>(out);
  } else if (group.items == 1) {
    const Run& first = group.item;
    if (extent.length == first.length && extent.place.log == first.place.log &&
        extent.offset > first.offset && extent.offset - first.offset >= first.length) {
      group.items = 2;
      group.stride = extent.offset - first.offset;
      group.address_stride = extent.place.address - first.place.address;
      group.next_offset = extent.offset + group.stride;
      group.next_address = extent.place.address + group.address_stride;
      return;
    }
    flush<0>(out);
  }
  group.item.offset = extent.offset;  // it never has levels here
  group.item.length = extent.length;
  group.item.place = extent.place;
  group.items = 1;
}

// An item that the stage below could not join any further.
template <uint32_t kStage>
void RunDetector::add_run(const Run& run, DetectedBatch* out) {
  if constexpr (kStage == kRunLevels) {
    emit(run, out);
  } else {
    Group& group = groups_[kStage];
    if (run.levels == 0 || run.levels > kStage) {  // no pattern, or as deep as a run can be
      flush<kStage>(out);
      return add_run<kStage + 1>(run, out);
    }
    if (group.items >= 2 && run.offset == group.next_offset && run.place.address == group.next_address &&
        group.items < group.items_max && same_shape(run, group.item)) {
      ++group.items;
      group.next_offset += group.stride;
      group.next_address += group.address_stride;
      return;
    }
    if (group.items == 1 && run.offset > group.item.offset && same_shape(run, group.item)) {
      const uint64_t stride = run.offset - group.item.offset;
      if (const uint64_t fit = items_that_fit(group.item, stride); fit >= 2) {
        group.items = 2;
        group.items_max = fit;
        group.stride = stride;
        group.address_stride = run.place.address - group.item.place.address;
        group.next_offset = run.offset + stride;
        group.next_address = run.place.address + group.address_stride;
        return;
      }
    }
    flush<kStage>(out);
    group.item = run;
    group.items = 1;
  }
}

template <uint32_t kStage>
void RunDetector::flush(DetectedBatch* out) {
  Group& group = groups_[kStage];
  if (group.items == 0) return;
  if (group.items == 1) {  // later stages could not join it either
    flush_from<kStage + 1>(out);
    group.items = 0;
    return emit(group.item, out);
  }
  const Run run = with_level(group.item, {group.items, group.stride, group.address_stride});
  group.items = 0;
  add_run<kStage + 1>(run, out);
}

template <uint32_t kStage>
void RunDetector::flush_from(DetectedBatch* out) {
  if constexpr (kStage < kRunLevels) {
    flush<kStage>(out);
    flush_from<kStage + 1>(out);
  }
}

void RunDetector::finish(DetectedBatch* out) {
  if (!any_) return;
  any_ = false;
  add_extent(last_, out);
  flush_from<0>(out);
}

void RunDetector::emit(const Run& run, DetectedBatch* out) const {
  if (run.levels == 0) return out->extents.push_back({run.offset, run.length, run.place});
  if (blocks_of(run) >= blocks_min_) {
    out->runs.push_back(run);
    out->run_at.push_back(out->extents.size());
    return;
  }
  for_each_block(run, [&](const Extent& block) { out->extents.push_back(block); });
}

}  // namespace swale::meta
