// The auxiliary segment of field extrema: layouts, sizes and checksums, byte by byte. docs/formats/extrema.md
// has the rules around them, docs/design/field-extrema.md the reasons.
//
// DO NOT CHANGE these layouts: they are on disk. All integers are little-endian.
//
//   segment := head | for each indexed field: list of maxima, list of minima | zeros to 64
//   head    := ExtremaHead | ExtremaField{fields} | (ExtremaRun | {u64 minimum, u64 maximum}{fields}){runs} |
//           zeros to 64
//   list    := piece*
//   piece   := u32 crc32c | u32 reserved | u64 bound{⌈entries / step⌉} | u16 block{entries} | zeros to 8
//
// A list names every block of the group that has a value of the field, the block with the greatest maximum
// (least minimum) first. `block` counts the blocks of the group's runs, run after run, from 0. bound[j] is
// the exact extremum, as an order key, of the list's entry j · step: no later entry of the list exceeds it.
//
// In the segment's record: flags = kAuxiliarySegment | kExtremaSegment, runs and records as usual, stride =
// the head's bytes, slice_bits = 0, overflow_units = the lists' bytes / 64, value_bytes = blocks, key_bytes =
// fields.
#pragma once

#include <cstddef>
#include <cstdint>

#include "run/format.h"
#include "run/schema.h"

namespace swale::run {

inline constexpr uint32_t kExtremaMagic = 0x31585753;  // "SWX1"
inline constexpr uint8_t kExtremaFlags = kAuxiliarySegment | kExtremaSegment;
inline constexpr uint32_t kGroupBlocksMax = 65'536;  // a block of the group has 2 bytes

enum class Extreme : uint8_t { kLargest = 0, kSmallest = 1 };

// A greater score is a better entry, for both kinds of extreme.
constexpr OrderKey score_of(Extreme which, OrderKey key) { return which == Extreme::kLargest ? key : ~key; }

struct ExtremaHead {
  uint32_t crc32c;  // extrema_seed(..., kHeadPart), then from byte 4 to head_bytes
  uint32_t magic;
  uint32_t head_bytes;
  uint32_t blocks;
  uint32_t runs;
  uint32_t fields;
  uint64_t records;
  uint64_t reserved[4];
};
static_assert(sizeof(ExtremaHead) == 64);

struct ExtremaField {
  FieldType type;
  uint8_t reserved0[3];
  uint32_t offset;   // in the value
  uint64_t nans;     // records whose number is a NaN
  uint64_t absent;   // records whose value is too short
  OrderKey minimum;  // over the group; greater than maximum if no record has a value
  OrderKey maximum;
  uint32_t listed;  // blocks with a value
  uint32_t reserved1;
  uint64_t reserved2[2];
};
static_assert(sizeof(ExtremaField) == 64 && offsetof(ExtremaField, listed) == 40);

struct ExtremaRun {
  uint32_t first_block;  // relative to segment.data_block
  uint32_t blocks;
  uint32_t records;
  uint32_t value_bytes;  // uniform runs, as in the run's header
  RunKind kind;
  uint8_t key_bytes;
  uint16_t reserved0;
  uint32_t reserved1;
};
static_assert(sizeof(ExtremaRun) == 24);

constexpr uint64_t extrema_head_bytes(uint64_t runs, uint64_t fields) {
  return round_up(
      sizeof(ExtremaHead) + fields * sizeof(ExtremaField) + runs * (sizeof(ExtremaRun) + fields * 16),
      kStrideUnit);
}

// The first piece of a list is small and exact; the others have one bound for each 32 entries, their first
// one's.
inline constexpr uint32_t kFirstPieceEntries = 128;
inline constexpr uint32_t kPieceEntries = 1'536;
inline constexpr uint32_t kPieceStep = 32;
inline constexpr uint32_t kPieceHeaderBytes = 8;

constexpr uint32_t piece_count(uint32_t listed) {
  if (listed <= kFirstPieceEntries) return listed == 0 ? 0 : 1;
  return 1 + (listed - kFirstPieceEntries + kPieceEntries - 1) / kPieceEntries;
}

struct ListPieceShape {
  uint32_t first_entry = 0;
  uint32_t entries = 0;
  uint32_t step = 1;
  uint32_t offset = 0;  // in the list

  constexpr uint32_t bounds() const { return (entries + step - 1) / step; }
  constexpr uint32_t bytes() const {
    return kPieceHeaderBytes + 8 * bounds() + static_cast<uint32_t>(round_up(2 * uint64_t{entries}, 8));
  }
};

// Requires piece < piece_count(listed).
constexpr ListPieceShape list_piece_shape(uint32_t listed, uint32_t piece) {
  const uint32_t first = listed < kFirstPieceEntries ? listed : kFirstPieceEntries;
  ListPieceShape shape{.first_entry = 0, .entries = first, .step = 1, .offset = 0};
  if (piece == 0) return shape;
  const ListPieceShape whole{.first_entry = 0, .entries = kPieceEntries, .step = kPieceStep, .offset = 0};
  const uint32_t begin = kFirstPieceEntries + (piece - 1) * kPieceEntries;
  const uint32_t entries = listed - begin < kPieceEntries ? listed - begin : kPieceEntries;
  return {.first_entry = begin,
          .entries = entries,
          .step = kPieceStep,
          .offset = shape.bytes() + (piece - 1) * whole.bytes()};
}

constexpr uint32_t list_bytes(uint32_t listed) {
  if (listed == 0) return 0;
  const ListPieceShape last = list_piece_shape(listed, piece_count(listed) - 1);
  return last.offset + last.bytes();
}

// The part that a checksum covers: the head, or one piece of one list.
inline constexpr uint32_t kHeadPart = 0xffffffff;
constexpr uint32_t piece_part(uint32_t field, Extreme which, uint32_t piece) {
  return (field << 1 | static_cast<uint32_t>(which)) << 16 | piece;
}
uint32_t extrema_seed(PartitionNumber partition, const SegmentRecord& segment, uint32_t part);

}  // namespace swale::run
