// Writing field extrema: ExtremaGroup computes them from finished blocks of runs; ExtremaSegmentBuilder makes
// the group's auxiliary segment of the index log. Both are passive.
//
//   begin_run ─► add_blocks (as the run builder produced them) … ─► begin_run … ─►
//   ExtremaSegmentBuilder::fill
//
// A record counts for the block in which it starts.
// Threads: one at a time; the way's worker.
// Memory: 16 bytes per block and field, and 32 per block while the segment is made. Limits: kGroupBlocksMax
// blocks.
// Format: extrema_format.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "run/extrema_format.h"
#include "run/segment_builder.h"

namespace swale::run {

// Minimum and maximum of some records' numbers. Empty: minimum > maximum.
struct Extrema {
  OrderKey minimum = ~OrderKey{0};
  OrderKey maximum = 0;

  bool empty() const { return minimum > maximum; }
  void add(const Extrema& other) {
    if (other.minimum < minimum) minimum = other.minimum;
    if (other.maximum > maximum) maximum = other.maximum;
  }
  void add(OrderKey key) { add(Extrema{key, key}); }
  OrderKey best(Extreme which) const { return which == Extreme::kLargest ? maximum : minimum; }
  bool operator==(const Extrema&) const = default;
};

// The totals of one field over many records.
struct FieldTotals {
  Extrema extrema;
  uint64_t nans = 0;
  uint64_t absent = 0;

  void add(const FieldTotals& other) {
    extrema.add(other.extrema);
    nans += other.nans;
    absent += other.absent;
  }
  void add(const FieldValue& value) {
    if (value.kind == FieldValue::Kind::kNumber) extrema.add(value.key);
    nans += value.kind == FieldValue::Kind::kNan ? 1 : 0;
    absent += value.kind == FieldValue::Kind::kAbsent ? 1 : 0;
  }
  bool operator==(const FieldTotals&) const = default;
};

class ExtremaGroup {
 public:
  // A run of more than `blocks_max` blocks gets its own group, whose memory grows.
  ExtremaGroup(std::span<const FieldPlace> fields, uint32_t blocks_max);
  static size_t memory_bytes(size_t blocks, size_t fields) { return blocks * fields * sizeof(Extrema); }

  bool empty() const { return runs_.empty(); }
  bool fits(uint32_t run_blocks) const { return empty() || blocks_ + run_blocks <= blocks_max_; }

  // `first_block`: in the data log; `blocks`: of the run. Requires that all blocks of the previous run were
  // added.
  void begin_run(BlockNumber first_block, uint32_t blocks);
  // The run's next whole blocks.
  void add_blocks(Bytes blocks);
  void clear();

  const FieldTotals& totals(size_t field) const { return totals_[field]; }
  size_t fields() const { return fields_.size(); }

 private:
  friend class ExtremaSegmentBuilder;

  struct Run {
    BlockNumber first_block = {};
    uint32_t group_block;  // number of its first block
    RunHeader header;
  };

  void add_block(Bytes block);
  void add_rows(const char* row, uint32_t count);
  void add_stream(Bytes block);
  void add_record(uint32_t block, Bytes value);

  const std::vector<FieldPlace> fields_;
  const uint32_t blocks_max_;
  std::vector<Run> runs_;
  std::vector<std::vector<Extrema>> blocks_of_;  // by field and block
  std::vector<FieldTotals> totals_;
  uint32_t blocks_ = 0;      // of all runs, the one being added included
  uint32_t next_block_ = 0;  // the next to be added
  std::string unfinished_;   // variable runs: front of a record that spans blocks
  uint32_t unfinished_block_ = 0;
  std::vector<char> piece_;  // packed runs: of the current block
};

class ExtremaSegmentBuilder {
 public:
  struct Entry {
    OrderKey score;
    uint16_t block;
  };
  static size_t memory_bytes(size_t blocks) { return blocks * 2 * sizeof(Entry); }

  // Requires a nonempty group whose last run is complete. It must outlive the builder. All runs lie in the
  // params.data_blocks blocks from params.data_block on. The segment goes after `index_end`: record() says
  // where.
  ExtremaSegmentBuilder(const ExtremaGroup& group, const SegmentParams& params, uint64_t index_end);

  uint64_t size_bytes() const { return segment_bytes(segment_); }
  const SegmentRecord& record() const { return segment_; }

  // As SegmentBuilder::fill.
  size_t fill(MutableBytes out);
  bool done() const { return produced_bytes_ == size_bytes(); }

 private:
  void make_head();
  void sort_list();
  void make_piece();
  bool next_chunk();
  size_t lists() const { return 2 * group_.fields(); }
  size_t field() const { return list_ / 2; }
  Extreme which() const { return static_cast<Extreme>(list_ % 2); }

  const ExtremaGroup& group_;
  const PartitionNumber partition_;
  SegmentRecord segment_;
  std::vector<uint32_t> listed_;  // by field
  std::vector<Entry> order_;      // of the current list
  std::vector<Entry> scratch_;
  std::vector<char> buffer_;  // the head or one piece
  bool head_made_ = false;
  size_t list_ = 0;
  uint32_t piece_ = 0;
  size_t taken_ = 0;  // of buffer_
  uint64_t produced_bytes_ = 0;
};

}  // namespace swale::run
