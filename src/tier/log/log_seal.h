// LogSeal: what the SSD directory says of its log as a whole: how often it was opened, and, after a clean
// end, which records each segment has. A log that is sealed as closed has no torn records: whatever is
// missing or damaged then is a loss of acknowledged bytes, and no segment that was erased can come back.
//
// The generation counts the openings of a pair of directories. The seal and the backing directory's mark both
// have it; an opening raises the seal's first, and the mark's when the seal is durable. So a directory that
// was put back from an older copy is known by its lower generation.
//
//   seal    := magic "STwM" | crc u32 | version u16 = 1 | closed u8 | 0 u8 | segments u32 | log_id u64 |
//              generation u64 | segment{segments} | varint queues | queue{queues}
//   segment := varint generation | varint records | varint distance{records}
//   queue   := sized name | varint records
// crc: CRC-32C of everything after it. closed: 1 if the last process ended cleanly. distance: from the
// begin of the record before, the first one from 0, in kRecordUnit (64 bytes); marks are left out. queue:
// one of a killed process that still holds writes. An open log's segments have their generations and no
// records, and it has no queues.
//
// Threads: pure functions. Errors: kCorruption names the file and the offset.
// Limits: as the log's; 1 to 3 bytes a record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "tier/log/log_format.h"

namespace swale::tier {

inline constexpr uint32_t kSealMagic = 0x4d775453;  // "STwM"
inline constexpr uint16_t kSealVersion = 1;
inline constexpr size_t kSealHeadBytes = 32;
inline constexpr size_t kSealBytesMax = size_t{1} << 30;

struct SegmentSeal {
  uint32_t generation = 0;        // of the records that count; older ones are remains
  std::vector<uint32_t> records;  // where they begin, in kRecordUnit from the begin of the segment: rising
  friend bool operator==(const SegmentSeal&, const SegmentSeal&) = default;
};

// A queue of a process that was killed, which still holds acknowledged writes.
struct QueueSeal {
  std::string name;
  uint64_t records = 0;
  friend bool operator==(const QueueSeal&, const QueueSeal&) = default;
};

struct LogSeal {
  uint64_t log_id = 0;
  uint64_t generation = 0;
  bool closed = false;
  std::vector<SegmentSeal> segments;
  std::vector<QueueSeal> queues;
  friend bool operator==(const LogSeal&, const LogSeal&) = default;
};

std::string encode_log_seal(const LogSeal& seal);
Result<LogSeal> decode_log_seal(Bytes bytes, const std::string& path);

// Whether the seal is that of this log; only then is it compared with the log's segments.
Status check_belongs(const LogSeal& seal, const SegmentHeader& geometry, const std::string& ssd_directory);

// What the seal of a closed log names and the scan has not found, one message a segment, with its place in
// the log.
std::vector<Status> missing_records(const LogSeal& seal, const std::vector<SegmentScan>& segments,
                                    const std::string& path);

}  // namespace swale::tier
