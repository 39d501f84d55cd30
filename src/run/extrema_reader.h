// Reading field extrema: the head of an auxiliary segment, the pieces of its lists, and the records of a
// block that a list names.
//
//   [read the segment's first stride bytes] ─► decode_extrema_head ─► piece(...) ─► [read it] ─►
//   decode_extrema_piece ─► [read a block] ─► BlockRecords
//
// Threads: values and free functions.
// Errors: kCorruption that names file and offset; kUnsupported for a field type of a newer format. Bytes that
// pass
//   their checksum are still not trusted for memory safety.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "run/extrema.h"
#include "run/extrema_format.h"
#include "run/record.h"

namespace swale::run {

// Whether the segment holds extrema that this build knows; readers skip other auxiliary segments.
bool is_extrema_segment(const SegmentRecord& segment);

struct GroupRun {
  BlockNumber first_block = {};  // in the data log
  uint32_t group_block = 0;      // of its first block
  uint32_t blocks = 0;
  uint32_t records = 0;
  uint32_t value_bytes = 0;
  RunKind kind = RunKind::kUniform;
  uint8_t key_bytes = 0;
  std::vector<Extrema> extrema;  // by field
};

struct GroupField {
  FieldType type = FieldType::kF8;
  uint32_t offset = 0;
  uint32_t listed = 0;
  FieldTotals totals;
  uint64_t lists_offset = 0;  // of its list of maxima, in the index log; the list of minima follows
};

struct GroupHead {
  SegmentRecord segment;
  std::vector<GroupField> fields;
  std::vector<GroupRun> runs;  // by group_block

  // Requires a block of the group.
  const GroupRun& run_of(uint32_t group_block) const;
};

// `bytes`: the first segment.stride bytes of the segment, which comes from a decoded footer.
Result<GroupHead> decode_extrema_head(const SegmentRecord& segment, PartitionNumber partition, Bytes bytes,
                                      std::string_view path);
// Checks the numbers in a segment's record before anything is read: `index_end` bounds the segment.
Status check_extrema_segment(const SegmentRecord& segment, uint64_t index_end, std::string_view path);

struct PiecePlace {
  uint64_t offset = 0;  // in the index log
  uint32_t bytes = 0;
};
// Requires piece < piece_count(field.listed).
PiecePlace piece_place(const GroupHead& head, size_t field, Extreme which, uint32_t piece);

struct PieceEntry {
  OrderKey bound = 0;  // no later entry of the list is better
  uint32_t block = 0;  // of the group
};
Result<std::vector<PieceEntry>> decode_extrema_piece(const GroupHead& head, PartitionNumber partition,
                                                     size_t field, Extreme which, uint32_t piece, Bytes bytes,
                                                     std::string_view path);

// The whole content of a group, from the bytes of its segment.
struct GroupContent {
  GroupHead head;
  std::vector<std::vector<PieceEntry>> lists;  // by field, maxima before minima
};
Result<GroupContent> decode_extrema_group(const SegmentRecord& segment, PartitionNumber partition,
                                          Bytes bytes, std::string_view path);

// kCorruption if a group's fields are not those of the manifest (`indexed`).
Status check_group_fields(const GroupHead& head, std::span<const FieldPlace> indexed, std::string_view path);

// Calls fn(number in the block, record) for every record that starts in a block of the run. `blocks`: that
// block, *verified*, and for variable runs the following blocks, as far as they were read. Returns the number
// of further blocks needed for the last record (fn was not called then), or 0.
using BlockRecordFn = std::function<void(uint32_t number, const RecordView& record)>;
Result<uint32_t> records_of_block(const GroupRun& run, BlockNumber block_number, Bytes blocks,
                                  const BlockRecordFn& fn, std::string_view path);

}  // namespace swale::run
