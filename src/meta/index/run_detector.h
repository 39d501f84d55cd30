// RunDetector: finds the regular patterns in what a client writes, before anything is sorted: contiguous
// pieces, constant strides, and strides of strides (tiles, BTIO's cells), kRunLevels deep.
//
// Entries pass through a chain of stages. The first joins pieces that continue each other in the file and in
// the log. Stage k collects items of equal shape (extents, then runs of one level, then of two) at equal
// distances into runs with one level more. What a stage cannot join goes on as it is. A run with fewer than
// `blocks_min` blocks is given out as extents again, so that random input costs no more than it did.
//
// Runs come out valid: levels ascend by stride and each stride spans the levels below, also where the
// program's loops go the other way. Addresses may descend (modulo 2^64).
//
// Exact: a run replaces entries that followed one another in the input and do not overlap each other.
// Applying the output in its order therefore gives the same map of bytes as applying the entries in theirs.
//
// One detector serves one file of one client; entries of several logs may mix. Source: DESIGN.md "Runs end to
// end"; metakv has the patterns (III-A, Fig. 5) and leaves them to LZ77.
// Threads: one at a time. Errors: std::bad_alloc; give the detector and its output up then.
// Limits: memory of kRunLevels + 1 runs; nothing else is kept between calls.
#pragma once

#include <span>
#include <vector>

#include "meta/index/types.h"

namespace swale::meta {

// What was detected, in order: extents[0 .. run_at[0]), runs[0], extents[run_at[0] .. run_at[1]), runs[1],
// ... Later items win where they overlap earlier ones.
struct DetectedBatch {
  std::vector<Extent> extents;
  std::vector<Run> runs;
  std::vector<uint64_t> run_at;  // how many extents stand before each run

  size_t size() const { return extents.size() + runs.size(); }
  void clear() { extents.clear(), runs.clear(), run_at.clear(); }
  // Calls extent(const Extent&) or run(const Run&) for each item, in order.
  template <class OnExtent, class OnRun>
  void for_each(const OnExtent& extent, const OnRun& run) const {
    size_t at = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      for (; at < run_at[i]; ++at) extent(extents[at]);
      run(runs[i]);
    }
    for (; at < extents.size(); ++at) extent(extents[at]);
  }
};

class RunDetector {
 public:
  static constexpr uint64_t kBlocksMin = 8;  // 112 bytes of a run against 32 for each of 8 extents

  explicit RunDetector(uint64_t blocks_min = kBlocksMin) : blocks_min_(blocks_min) {}

  // Entries in the order in which they were written. Requires lengths above 0 and ends of at most kOffsetEnd.
  // The last pattern stays open: entries of the next call may continue it.
  void add(std::span<const Extent> entries, DetectedBatch* out);
  // The same of ranges without a place: what is found has the offset of each range as its address, in log 0.
  // One detector takes entries of one kind.
  void add(std::span<const ByteRange> ranges, DetectedBatch* out);
  // Gives out what is open.
  void finish(DetectedBatch* out);

 private:
  // Items of equal shape at equal distances. Empty, or `items` of them.
  struct Group {
    Run item;  // the first one
    uint64_t items = 0;
    uint64_t stride = 0;  // from two items on
    uint64_t address_stride = 0;
    uint64_t next_offset = 0;  // where the next one would stand
    uint64_t next_address = 0;
    uint64_t items_max = 0;  // how many the levels below have space for
  };

  bool continues_pattern(const Extent& extent) const {
    const Group& group = groups_[0];
    return group.items >= 2 && extent.offset == group.next_offset &&
           extent.place.address == group.next_address && extent.length == group.item.length &&
           extent.place.log == group.item.place.log;
  }
  template <class Item>
  void add_entries(std::span<const Item> entries, DetectedBatch* out);
  template <class Item>
  size_t take_items(std::span<const Item> entries);
  template <class Item>
  size_t take_pieces(std::span<const Item> entries);
  void add_extent(const Extent& extent, DetectedBatch* out);
  template <uint32_t kStage>
  void add_run(const Run& run, DetectedBatch* out);
  template <uint32_t kStage>
  void flush(DetectedBatch* out);
  template <uint32_t kStage>
  void flush_from(DetectedBatch* out);
  void emit(const Run& run, DetectedBatch* out) const;

  const uint64_t blocks_min_;
  bool any_ = false;
  Extent last_;               // what the next entry may continue
  Group groups_[kRunLevels];  // by the levels of their items
};

}  // namespace swale::meta
