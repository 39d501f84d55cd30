// The SSD log as bytes. Full description and reading order: docs/formats/tier-log.md.
//
//   log     := segment*                                  each of the same size, at index * segment_size
//   segment := segment_header record*
//   record  := record_header payload? padding            begins at a multiple of the log's alignment
//
//   segment_header (64 bytes): magic u32, crc u32, version u16, alignment_log2 u8, 0 u8, index u32, log_id u64,
//     segment_size u64, generation u32, segment_count u32, sequence u64, 0 u64, 0 u64
//   record_header (64 bytes): magic u32, crc u32, type u8, 0 u8, 0 u16, segment u32, generation u32, payload_crc u32,
//     sequence u64, file u64, offset u64, length u32, 0 u32, address u64
//
// crc covers the header from byte 8 on, and begins with the log's id: bytes of another log, or a copy of a record in a
// file's own content, at another address or of an earlier generation, are never taken for a record.
//
// Threads: pure functions. Errors: decoders answer kCorruption and never trust a length.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::tier {

inline constexpr size_t kSegmentHeaderBytes = 64;
inline constexpr size_t kRecordHeaderBytes = 64;
inline constexpr uint32_t kSegmentMagic = 0x53775453;  // "STwS"
inline constexpr uint32_t kRecordMagic = 0x52775453;   // "STwR"
inline constexpr uint16_t kLogVersion = 1;

// DO NOT CHANGE THESE VALUES: they stand in logs.
enum class RecordType : uint8_t {
  kWrite = 1,  // `length` bytes of payload for [offset, offset + length)
  kPunch =
      2,  // the backing device has [offset, offset + length) as of this sequence; older records of it are void
  kTruncate = 3,      // the file's size becomes `offset`: intent; the backing file may still be longer
  kTruncateDone = 4,  // the truncate of sequence `offset` has happened to the backing file
  kUnlink = 5,        // all older records of the file are void
  kQueued = 6,        // as kWrite, but in a slot of the shared queue, on its way to the backing device
};

struct SegmentHeader {
  uint32_t index = 0;
  uint32_t generation = 0;  // counts erasures; records of other generations are remains
  uint64_t log_id = 0;
  uint64_t segment_size = 0;
  uint32_t segment_count = 0;
  uint32_t alignment = 64;
  uint64_t sequence = 0;  // the highest given out when the segment was last erased
};

struct RecordHeader {
  RecordType type = RecordType::kWrite;
  uint32_t segment = 0;
  uint32_t generation = 0;
  uint32_t payload_crc = 0;
  uint64_t sequence = 0;
  uint64_t file = 0;  // the file's persistent id
  uint64_t offset = 0;
  uint32_t length = 0;
  uint64_t address = 0;  // of this header in the log

  bool has_payload() const { return type == RecordType::kWrite || type == RecordType::kQueued; }
  // Bytes from this header to the next possible one.
  uint64_t space(uint32_t alignment) const {
    return round_up(kRecordHeaderBytes + (has_payload() ? length : 0), alignment);
  }
};

void encode_segment_header(const SegmentHeader& header, MutableBytes out);
Result<SegmentHeader> decode_segment_header(Bytes bytes);
void encode_record_header(const RecordHeader& header, uint64_t log_id, MutableBytes out);
Result<RecordHeader> decode_record_header(Bytes bytes, uint64_t log_id);

// A record whose header is whole and whose payload is not: torn when the power failed, or damaged since.
struct DamagedRecord {
  RecordHeader header;
  const char* reason;
};

struct SegmentScan {
  SegmentHeader header;
  bool header_damaged = false;  // the records tell the generation
  std::vector<RecordHeader> records;
  std::vector<DamagedRecord> damaged;
  uint64_t skipped_bytes = 0;  // between records: remains, or headers that were damaged
};

// Finds all records of a segment, whatever is damaged before or between them: a header that fails its checksum costs
// that record alone. `expected` is what the log's configuration says about the segment (generation and sequence are
// ignored). kCorruption if the segment belongs to another log.
Result<SegmentScan> scan_segment(Bytes segment, const SegmentHeader& expected);

}  // namespace swale::tier
