// The SSD log as bytes. Full description and reading order: docs/formats/tier-log.md.
//
//   log     := segment*                                  each of the same size, at index * segment_size
//   segment := segment_header record* ... segment_header  the second copy in the segment's last 64 bytes
//   record  := record_header checks? payload? padding record_end    begins and ends at a multiple of the
//                                                                   log's alignment
//   checks  := crc32c of each block of 4,096 bytes of the payload   absent if there is one block: the header
//                                                                   has it
//
//   segment_header (64 bytes): magic u32, crc u32, version u16, alignment_log2 u8, 0 u8, index u32,
//     log_id u64, segment_size u64, generation u32, segment_count u32, sequence u64, settled u64, 0 u64
//   record_header (64 bytes): magic u32, crc u32, type u8, 0 u8, 0 u16, segment u32, generation u32,
//     check u32, sequence u64, file u64, offset u64, length u32, unsettled u32, address u64
//   record_end: the record's header once more, with another magic
//
// crc covers the header from byte 8 on, and begins with the log's id: bytes of another log, or a copy of a
// record in a file's own content, at another address or of an earlier generation, are never taken for a
// record. The header's `check` covers the checks, and these the payload: so any 4 KiB of a record can be
// verified without the rest of it. A record whose header or whose end is damaged is still found by the other
// one.
//
// Threads: pure functions. Errors: decoders answer kCorruption and never trust a length.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::tier {

inline constexpr size_t kSegmentHeaderBytes = 64;
inline constexpr size_t kRecordHeaderBytes = 64;
inline constexpr uint32_t kCheckedBlockBytes = 4096;
inline constexpr uint32_t kSegmentMagic = 0x53775453;    // "STwS"
inline constexpr uint32_t kRecordMagic = 0x52775453;     // "STwR"
inline constexpr uint32_t kRecordEndMagic = 0x45775453;  // "STwE"
inline constexpr uint16_t kLogVersion = 2;

// DO NOT CHANGE THESE VALUES: they stand in logs.
enum class RecordType : uint8_t {
  kWrite = 1,  // `length` bytes of payload for [offset, offset + length)
  // the backing device has [offset, offset + length) as of this sequence; older records of it are void
  kPunch = 2,
  kTruncate = 3,           // the file's size becomes `offset`: intent; the backing file may still be longer
  kTruncateDone = 4,       // the truncate of sequence `offset` has happened to the backing file
  kUnlink = 5,             // all older records of the file are void
  kQueued = 6,             // as kWrite, but in a slot of the shared queue, on its way to the backing device
  kSettled = 7,            // nothing: its header says that what came before it is settled
  kTruncateCancelled = 8,  // the truncate of sequence `offset` has failed: the backing file was not cut
};

// No log gets so far; counting on from more would begin at 0 again, and new records would look old.
inline constexpr uint64_t kSequenceMax = uint64_t{1} << 62;
inline constexpr uint32_t kErasuresMax = uint32_t{1} << 31;
inline constexpr uint64_t kOpeningsMax = uint64_t{1} << 62;

struct SegmentHeader {
  uint32_t index = 0;
  uint32_t generation = 0;  // counts erasures; records of other generations are remains
  uint64_t log_id = 0;
  uint64_t segment_size = 0;
  uint32_t segment_count = 0;
  uint32_t alignment = 64;
  uint64_t sequence = 0;  // the highest given out when the segment was last erased
  uint64_t settled = 0;   // what was settled then: the records that said so may have been in this segment
};

// `alignment` is a power of two: no division.
constexpr uint64_t align_up(uint64_t value, uint32_t alignment) {
  return (value + alignment - 1) & ~(uint64_t{alignment} - 1);
}

struct RecordHeader {
  RecordType type = RecordType::kWrite;
  uint32_t segment = 0;
  uint32_t generation = 0;
  uint32_t check = 0;  // CRC-32C of the checks; of the payload, if that is one block
  uint64_t sequence = 0;
  uint64_t file = 0;  // the file's persistent id
  uint64_t offset = 0;
  uint32_t length = 0;
  uint64_t address = 0;  // of this header in the log
  // All records with a sequence up to settled() had been acknowledged, or had failed, when this one was made:
  // if such a record is damaged, acknowledged bytes are lost; if another one is, it may never have been
  // whole.
  uint32_t unsettled = kSettledUnknown;
  static constexpr uint32_t kSettledUnknown = ~uint32_t{0};

  bool has_payload() const { return type == RecordType::kWrite || type == RecordType::kQueued; }
  uint64_t settled() const { return unsettled >= sequence ? 0 : sequence - 1 - unsettled; }
  uint32_t payload_bytes() const { return has_payload() ? length : 0; }
  uint32_t checks_bytes() const;
  uint64_t head_bytes() const { return kRecordHeaderBytes + checks_bytes(); }  // what is before the payload
  uint64_t payload_address() const { return address + head_bytes(); }
  // Bytes from this header to the next one; the record's end are the last 64 of them.
  uint64_t space(uint32_t alignment) const {
    return align_up(head_bytes() + payload_bytes() + kRecordHeaderBytes, alignment);
  }
};

constexpr uint32_t checked_blocks(uint32_t length) {
  return static_cast<uint32_t>((uint64_t{length} + kCheckedBlockBytes - 1) / kCheckedBlockBytes);
}
constexpr uint32_t checks_bytes_of(uint32_t length) {
  return checked_blocks(length) > 1 ? 4 * checked_blocks(length) : 0;
}
inline uint32_t RecordHeader::checks_bytes() const { return has_payload() ? checks_bytes_of(length) : 0; }
// Space that a write of `length` bytes takes in the log.
constexpr uint64_t record_space(uint32_t length, uint32_t alignment) {
  return align_up(2 * kRecordHeaderBytes + checks_bytes_of(length) + length, alignment);
}

// Writes the checks of a payload to `checks` (checks_bytes_of its size) and returns the header's `check`.
uint32_t make_checks(Bytes payload, MutableBytes checks);
// Whether the checks are those that the header covers. True if it has none.
bool checks_are_whole(const RecordHeader& header, Bytes checks);

struct PayloadRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const PayloadRange&, const PayloadRange&) = default;
};
// The damaged ranges of `payload`, which are the bytes of a record's payload from `from` on, a multiple of
// the block, to a multiple of it or the payload's end. Whole blocks; neighbours as one range. `checks` must
// be whole.
std::vector<PayloadRange> damaged_ranges(const RecordHeader& header, Bytes checks, uint32_t from,
                                         Bytes payload);

void encode_segment_header(const SegmentHeader& header, MutableBytes out);
// The second copy of the header is so many bytes before the end of the segment.
constexpr uint64_t segment_tail_bytes(uint32_t alignment) { return align_up(kSegmentHeaderBytes, alignment); }
Result<SegmentHeader> decode_segment_header(Bytes bytes);
void encode_record_header(const RecordHeader& header, uint64_t log_id, MutableBytes out);
void encode_record_end(const RecordHeader& header, uint64_t log_id, MutableBytes out);
Result<RecordHeader> decode_record_header(Bytes bytes, uint64_t log_id);
Result<RecordHeader> decode_record_end(Bytes bytes, uint64_t log_id);

// A record that is known and whose payload is not whole: torn when it was written, or damaged since.
struct DamagedRecord {
  RecordHeader header;
  const char* reason = "";
  std::vector<PayloadRange> ranges = {};  // what is damaged; the rest passes its checks
};

struct SegmentScan {
  SegmentHeader header;
  bool header_damaged = false;      // one copy of it at least
  bool generation_guessed = false;  // both copies are damaged: the records tell the generation
  std::vector<RecordHeader> records;
  std::vector<DamagedRecord> damaged;
  // of `records` and `damaged`: found by their ends, the headers are damaged
  std::vector<RecordHeader> mended;
  uint64_t skipped_bytes = 0;  // between records: remains, or headers that were damaged
};

// What the log's seal says of a segment's generation (log_seal.h).
struct KnownGeneration {
  uint32_t generation = 0;
  // the log was closed cleanly; else it was this one or a later one when the process stopped
  bool exact = false;
};

// Finds all records of a segment, whatever is damaged before or between them. `expected` is what the log's
// configuration says about the segment (generation and sequence are ignored). Records of a generation below
// the known one are remains, whatever the segment's headers say: such headers count as damaged. kCorruption
// if the segment belongs to another log, or is newer than an exact generation.
Result<SegmentScan> scan_segment(Bytes segment, const SegmentHeader& expected,
                                 const KnownGeneration* known = nullptr);

// Takes the damaged records out that no record says were settled: they were torn when the process or the
// machine stopped. Carry out mends_of before anything is appended to the log: later records would say that
// they were settled.
std::vector<DamagedRecord> take_torn(std::vector<SegmentScan>* segments);

struct LogWrite {
  uint64_t address;
  std::string bytes;
};
// Writes that replace torn records by marks, and damaged copies of headers by whole ones. The log is synced
// after each of the two rounds: so one copy of each header is whole at any time, and what it says of others
// being settled is never forgotten.
std::array<std::vector<LogWrite>, 2> mends_of(const std::vector<SegmentScan>& segments,
                                              const std::vector<DamagedRecord>& torn, uint64_t log_id,
                                              uint32_t alignment);

}  // namespace swale::tier
