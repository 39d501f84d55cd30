// Constants and fixed layouts of a partition's two files, data log and index log. Format version 1.
//
// DO NOT CHANGE these layouts: they are on disk. docs/formats/partition.md has the rules around them,
// docs/design/run-format.md the reasons and the arithmetic. All integers are little-endian.
//
// Every checksum is CRC-32C *extended from a seed* that identifies the owner of the bytes. So an intact block
// of another partition, or of another epoch at the same place (a lost write), does not pass:
//   partition_seed(partition)            run headers, footers
//   epoch_seed(partition, epoch_id)      data blocks
//   segment_seed(partition, segment)     slices and their overflows
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "base/codec.h"
#include "base/numbers.h"

namespace swale::run {

inline constexpr uint32_t kFormatVersion = 1;

// ---- data log ----

inline constexpr size_t kBlockBytes = 4096;
inline constexpr size_t kPayloadBytes = 4080;
inline constexpr uint16_t kNoRecordStarts = 0xffff;

// The last 16 bytes of a data block.
struct BlockTrailer {
  uint32_t first_ordinal;  // in its run, of the first record that starts in this block or after it
  uint16_t count;          // records that start in this block
  uint16_t first_start;    // payload offset of the first of these; kNoRecordStarts if there is none
  uint32_t block_number;   // position in the data log, low 32 bits: catches misdirected reads and writes
  uint32_t crc32c;         // epoch_seed, then the first 4,092 bytes
};
static_assert(sizeof(BlockTrailer) == 16 && offsetof(BlockTrailer, crc32c) == 12);
static_assert(kPayloadBytes + sizeof(BlockTrailer) == kBlockBytes);

// In blocks of packed runs, the last 8 bytes of the payload.
struct PackedTrailer {
  uint16_t stored_bytes;  // of the stored piece, from the payload's front (or the run header's end) on
  uint16_t piece_bytes;   // of the piece before compression, 1..32,768
  uint16_t row_bytes;     // above 1: rows of so many bytes were written as columns before compression
  Codec codec;
  uint8_t reserved;
};
static_assert(sizeof(PackedTrailer) == 8 && offsetof(PackedTrailer, codec) == 6);

inline constexpr uint32_t kRunMagic = 0x31525753;  // "SWR1"

enum class RunKind : uint8_t {
  kUniform = 0,   // rows of one size without headers, none crosses a block
  kVariable = 1,  // encoded records (record.h) as one stream through the payloads
  kPacked = 2,    // the same stream, cut into pieces that were compressed to fit a payload each
};

// The records of the run are encoded, one after the other, and may span blocks.
constexpr bool is_stream(RunKind kind) { return kind != RunKind::kUniform; }

// Which rank of a job keeps a record: the one that the hash of its key names, or that the job's own
// partitioner names, or the one that appended it (the lossy format).
enum class HomeRule : uint8_t { kHash = 0, kPartitioner = 1, kWriter = 2 };

// Which values do not stand in their records but in files of the rank that appended them. The same in all
// runs of a directory.
enum class ValueRule : uint8_t {
  kLarge = 0,  // those of more than 16,384 bytes: in value logs (value_format.h)
  kPaged = 1,  // those of 12 bytes and more: in value pages (value_pages.h)
};

// The first 64 payload bytes of a run.
struct RunHeader {
  uint32_t magic;
  RunKind kind;
  uint8_t key_bytes;  // uniform runs; 0 in others
  uint16_t way;
  uint32_t value_bytes;  // uniform runs; 0 in others
  EpochNumber epoch;
  uint64_t epoch_id;
  uint32_t run;  // 0, 1, 2, ... within the epoch and partition
  uint32_t records;
  uint32_t blocks;
  PartitionNumber partition;  // the rank that wrote it
  uint64_t data_bytes;        // keys and values
  uint32_t ranks;             // of the job that wrote it, and so partitions
  uint16_t ways;              // of each of these
  HomeRule home;              // of the job's records
  ValueRule values;
  uint32_t codec;   // Codec of a packed run; 0 in others
  uint32_t crc32c;  // partition_seed, then the first 60 bytes
};
static_assert(sizeof(RunHeader) == 64 && offsetof(RunHeader, epoch_id) == 16 &&
              offsetof(RunHeader, ranks) == 48 && offsetof(RunHeader, home) == 54 &&
              offsetof(RunHeader, values) == 55 && offsetof(RunHeader, crc32c) == 60);

inline constexpr uint32_t kRanksMax = 1u << 24;
inline constexpr uint32_t kRowBytesMax = 1020;     // uniform rows: at least four a block
inline constexpr uint32_t kRunBlocksMax = 65'535;  // so that a piece's block advance fits 16 bits
inline constexpr uint32_t kRunRecordsMax = 1u << 20;

// Uniform runs: row v ("virtual ordinal", counted from the run's first block as if the header were rows) lies
// in block v / rows_per_block, at row v % rows_per_block; record o of the run is row header_rows + o.
constexpr uint32_t rows_per_block(uint32_t row_bytes) {
  return static_cast<uint32_t>(kPayloadBytes) / row_bytes;
}
constexpr uint32_t header_rows(uint32_t row_bytes) {
  return (static_cast<uint32_t>(sizeof(RunHeader)) + row_bytes - 1) / row_bytes;
}
static_assert(header_rows(kRowBytesMax) < rows_per_block(kRowBytesMax));

// ---- index log ----

inline constexpr uint32_t kRemainderBits = 8;
inline constexpr uint32_t kSliceBitsMax = 17;
inline constexpr uint32_t kBucketBitsMax = 20;       // bits that choose slice and bucket
inline constexpr uint32_t kSliceRecordsGoal = 4096;  // over all runs
inline constexpr uint32_t kStrideUnit = 64;          // strides of several slices, overflows
inline constexpr uint32_t kIndexUnit = 8;  // segments and footers begin and end at multiples of this
inline constexpr uint32_t kIndexPageBytes = 4096;
// Segments of at least so many bytes begin and end at page boundaries, so that writes can bypass the page
// cache.
inline constexpr uint32_t kPagedSegmentBytes = 64 * 1024;

enum SegmentFlag : uint8_t {
  kUniformSegment = 1,        // all runs are uniform with one row size: short piece headers
  kExtremaSegment = 2,        // with kAuxiliarySegment: minima and maxima of fields (extrema_format.h)
  kValuesSegment = 4,         // with kAuxiliarySegment: an epoch's range of the value log (value_format.h)
  kBloomSegment = 8,          // no sketches but filters and fences; FilterPieceHeader
  kBlockedBloomSegment = 16,  // the same, with blocked filters
  kPackedSegment = 32,        // some of the runs are packed
  kTableSegment = 64,  // with kAuxiliarySegment: an auxiliary table of the epoch (docs/formats/lossy.md)
  kAuxiliarySegment = 0x80,  // not sketches: a reader that does not know its other flags skips it
};

// One segment of the index log: the transposed sketches of n runs of one way and epoch. Kept in footers.
struct SegmentRecord {
  uint64_t index_offset = 0;    // multiple of kIndexUnit
  BlockNumber data_block = {};  // first block of the epoch in the data log
  uint64_t epoch_id = 0;
  uint64_t records = 0;
  EpochNumber epoch = {};
  uint32_t data_blocks = 0;     // blocks of the epoch when the segment was made
  uint32_t runs = 0;            // 0: the epoch (of this way) has no records
  uint32_t stride = 0;          // distance of slices, bytes; 0 if runs is 0
  uint32_t overflow_units = 0;  // of 64 bytes, after the slices
  uint8_t slice_bits = 0;
  uint8_t flags = 0;        // SegmentFlag
  uint8_t key_bytes = 0;    // uniform segments
  uint8_t filter_bits = 0;  // per record, in segments with filters
  uint16_t way = 0;
  uint16_t ways = 1;
  uint32_t value_bytes = 0;  // uniform segments

  bool operator==(const SegmentRecord&) const = default;
};
static_assert(sizeof(SegmentRecord) == 64 && offsetof(SegmentRecord, epoch) == 32 &&
              offsetof(SegmentRecord, slice_bits) == 52 && offsetof(SegmentRecord, value_bytes) == 60);

constexpr bool is_auxiliary(const SegmentRecord& segment) { return (segment.flags & kAuxiliarySegment) != 0; }
constexpr bool is_filter_segment(const SegmentRecord& segment) {
  return !is_auxiliary(segment) && (segment.flags & (kBloomSegment | kBlockedBloomSegment)) != 0;
}

// Bytes of the segment in the index log, padding included.
constexpr uint64_t segment_bytes(const SegmentRecord& segment) {
  const uint64_t slices = segment.runs == 0 ? 0 : uint64_t{segment.stride} << segment.slice_bits;
  const uint64_t bytes = slices + uint64_t{segment.overflow_units} * kStrideUnit;
  return bytes < kPagedSegmentBytes ? bytes : round_up(bytes, kIndexPageBytes);
}

// The offset of a segment of `bytes` bytes in an index log that ends at `end`. Zeros fill the gap.
constexpr uint64_t segment_offset(uint64_t end, uint64_t bytes) {
  return round_up(end, bytes < kPagedSegmentBytes ? kIndexUnit : kIndexPageBytes);
}

struct SliceHeader {
  uint32_t crc32c;         // segment_seed, then from byte 4 to min(total_bytes, stride)
  uint32_t total_bytes;    // of the slice; the bytes beyond the stride lie in the overflow area
  uint32_t overflow_unit;  // their place there, in units of 64 bytes; 0 if there are none
  uint32_t slice;          // its own number: catches misdirected reads
};
static_assert(sizeof(SliceHeader) == 16);

// Piece header in a uniform segment.
struct UniformPieceHeader {
  uint32_t virtual_ordinal;      // of the piece's first record, counted in rows from segment.data_block
  uint32_t records_bucket_bits;  // 24 bits records, 8 bits bucket bits inside the slice
};
static_assert(sizeof(UniformPieceHeader) == 8);

// Piece header in a mixed segment.
struct MixedPieceHeader {
  uint32_t block;    // relative to segment.data_block. Uniform: the run's first block. Variable: the block of
                     // the last byte before the piece's first record
  uint32_t ordinal;  // of the piece's first record in its run
  uint32_t records_bucket_bits;
  uint16_t value_bytes;  // Uniform: size. Variable: how many blocks after `block` the piece's last byte lies
  uint8_t key_bytes;     // 0: variable or packed
  uint8_t packed;        // 1: packed
};
static_assert(sizeof(MixedPieceHeader) == 16);

// Piece header in a segment with filters. After all headers, for each piece: its filter, then its fences.
struct FilterPieceHeader {
  // relative to segment.data_block: where the byte before the piece's first record lies, or the record itself
  // in a uniform run or at the start of any
  uint32_t block;
  uint32_t records;  // below 2^24
  // how many blocks further the piece's last byte lies. A u32 each: the top 32 bits of the rest of the record
  // that the block's first byte belongs to
  uint16_t fences;
  uint16_t value_bytes;  // uniform
  uint8_t key_bytes;     // 0: variable or packed
  uint8_t packed;        // 1: packed
  uint16_t reserved;
};
static_assert(sizeof(FilterPieceHeader) == 16);

inline constexpr uint64_t kFooterMagic = 0x58444945'4c415753;  // "SWALEIDX"
inline constexpr uint32_t kFooterExtentsMax = 64;
inline constexpr uint32_t kSegmentsMax = 1u << 20;  // of one partition: 64 MiB of records in a reader

// Incompatible features of a footer.
enum FooterFeature : uint32_t {
  kLargeValuesFeature = 1,  // the partition has a value log
};
inline constexpr uint32_t kIncompatibleFeatures = kLargeValuesFeature;  // bits that this build understands

// An earlier footer; its records precede those of the footer that names it.
struct FooterExtent {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t first_record = 0;

  bool operator==(const FooterExtent&) const = default;
};
static_assert(sizeof(FooterExtent) == 16);

// The last 64 bytes of a footer. Before them: the extents; before these: the records, delta-coded (footer.h).
//
// A rule for all future versions: magic, version and both feature words stay in the first 20 bytes, and the
// trailer's checksum in its last 4, so that every build can tell "newer" from "damaged".
struct FooterTrailer {
  uint64_t magic;
  uint32_t version;
  uint32_t incompatible_features;  // unknown bits: the file must not be read
  uint32_t compatible_features;    // unknown bits: may be ignored by readers
  PartitionNumber partition;
  uint64_t offset;        // of the footer in the index log
  uint32_t bytes;         // of the footer, this trailer included
  uint32_t record_bytes;  // of the coded records, without the zeros up to a multiple of 8
  uint32_t first_record;  // number of the partition's records before this footer's: those of the extents
  uint32_t record_count;
  uint32_t extent_count;
  uint32_t reserved0;
  uint32_t body_crc32c;  // partition_seed, then all bytes of the footer before the trailer
  uint32_t crc32c;       // partition_seed, then the first 60 bytes of the trailer
};
static_assert(sizeof(FooterTrailer) == 64 && offsetof(FooterTrailer, partition) == 20 &&
              offsetof(FooterTrailer, bytes) == 32 && offsetof(FooterTrailer, crc32c) == 60);
static_assert(std::is_trivially_copyable_v<FooterTrailer> && std::is_trivially_copyable_v<RunHeader>);

uint32_t partition_seed(PartitionNumber partition);
uint32_t epoch_seed(PartitionNumber partition, uint64_t epoch_id);
uint32_t segment_seed(PartitionNumber partition, const SegmentRecord& segment);

}  // namespace swale::run
