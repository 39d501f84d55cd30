// The value log: values of more than 16,384 bytes, in one file per writing rank; and the records' pointers to
// them.
//
//   file:   entry, entry, …; the first one of an epoch begins at a multiple of 4,096, the others follow
//           without gaps
//   entry:  head | value
//   head:   magic: u32 | crc32c: u32 | offset: u64 | epoch_id: u64 | key_hash: u64 | epoch: u32 | writer: u32
//           | value_bytes: u32 | reserved: u32 | crc32c of each 65,536 bytes of the value: u32 …
//   pointer (the last 24 bytes in the value's place): offset: u64 | value_bytes: u32 | writer: u32 |
//           checksum: u32, the head's | reserved: u32
//
// The head's checksum starts from epoch_seed(writer, epoch_id) and covers the head from byte 8 on. A piece's
// checksum starts from the same seed, then covers its u64 offset in the file and the piece. So bytes of
// another log, epoch or place fail.
//
// DO NOT CHANGE these layouts: they are on disk. docs/formats/values.md has the rules around them,
// docs/design/lossy.md the reasons.
// Threads: free functions. Errors: kCorruption that names file and offset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::run {

inline constexpr size_t kLargeValueBytesMax = kGiB;
inline constexpr uint32_t kValueMagic = 0x31565753;  // "SWV1"
inline constexpr size_t kValueHeadBytes = 48;        // without the checksums of pieces
inline constexpr size_t kValuePieceBytes = 64 * kKiB;
inline constexpr size_t kValueAlignment = 4096;  // of an epoch's first entry

constexpr uint32_t value_pieces(uint32_t value_bytes) {
  return static_cast<uint32_t>((uint64_t{value_bytes} + kValuePieceBytes - 1) / kValuePieceBytes);
}
constexpr size_t value_head_bytes(uint32_t value_bytes) {
  return kValueHeadBytes + sizeof(uint32_t) * value_pieces(value_bytes);
}

struct ValueHead {
  uint64_t offset = 0;  // of the head in the log
  uint64_t epoch_id = 0;
  Hash key_hash = 0;
  EpochNumber epoch = {};
  PartitionNumber writer = {};
  uint32_t value_bytes = 0;
  uint32_t checksum = 0;         // of the encoded head
  std::vector<uint32_t> pieces;  // their checksums

  uint64_t value_offset() const { return offset + value_head_bytes(value_bytes); }
  uint64_t end_offset() const { return value_offset() + value_bytes; }
};

// The checksum of the piece at `offset` of the log.
uint32_t value_piece_checksum(uint32_t epoch_seed, uint64_t offset, Bytes piece);

// Sets head->checksum.
std::string encode_value_head(ValueHead* head);

// The length of the head that begins with these kValueHeadBytes bytes. Checks no checksum.
Result<size_t> peek_value_head(Bytes front, uint64_t offset, std::string_view path);
// `bytes`: the whole head, found at `offset` of the writer's log.
Result<ValueHead> decode_value_head(Bytes bytes, PartitionNumber writer, uint64_t offset,
                                    std::string_view path);

struct ValuePointer {
  uint64_t offset = 0;
  uint32_t value_bytes = 0;
  PartitionNumber writer = {};
  uint32_t checksum = 0;

  bool operator==(const ValuePointer&) const = default;
};

// The bytes in the place of a large value, decoded.
struct LargeValue {
  Bytes prefix;  // the value's first bytes
  ValuePointer pointer;
};
std::string encode_large_value(const LargeValue& value);
// kCorruption, which names `what`, for other bytes.
Result<LargeValue> decode_large_value(Bytes stored, std::string_view what);

// The range of a writer's values of one epoch. The footer of its index log stores it as an auxiliary segment
// record: index_offset = offset, stride and overflow_units = lower and upper half of `bytes`, records =
// values.
struct ValueRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;   // heads included
  uint64_t values = 0;  // 0: none

  uint64_t end_offset() const { return offset + bytes; }
  bool operator==(const ValueRange&) const = default;
};
inline bool is_values_segment(const SegmentRecord& segment) {
  return segment.flags == (kAuxiliarySegment | kValuesSegment);
}
SegmentRecord values_segment(const ValueRange& range, EpochNumber epoch, uint64_t epoch_id);
// Likewise, where the auxiliary table of an epoch lies in the home's .source file; `values` are its pairs. An
// epoch without keys has a table, too.
inline bool is_table_segment(const SegmentRecord& segment) {
  return segment.flags == (kAuxiliarySegment | kTableSegment);
}
SegmentRecord table_segment(const ValueRange& range, EpochNumber epoch, uint64_t epoch_id);
ValueRange range_of(const SegmentRecord& segment);

}  // namespace swale::run
