#include "tier/log_format.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::tier {
namespace {

constexpr size_t kCrcFrom = 8;

uint32_t header_crc(Bytes header, uint64_t log_id) {
  char id[8];
  put_u64(id, log_id);
  return crc32c_extend(crc32c(Bytes(id, sizeof(id))), header.substr(kCrcFrom, kRecordHeaderBytes - kCrcFrom));
}

bool known_type(uint8_t type) {
  return type >= static_cast<uint8_t>(RecordType::kWrite) &&
         type <= static_cast<uint8_t>(RecordType::kQueued);
}

}  // namespace

void encode_segment_header(const SegmentHeader& header, MutableBytes out) {
  assert(out.size() >= kSegmentHeaderBytes);
  char* const at = out.data();
  std::memset(at, 0, kSegmentHeaderBytes);
  put_u32(at, kSegmentMagic);
  put_u16(at + 8, kLogVersion);
  at[10] = static_cast<char>(std::countr_zero(header.alignment));
  put_u32(at + 12, header.index);
  put_u64(at + 16, header.log_id);
  put_u64(at + 24, header.segment_size);
  put_u32(at + 32, header.generation);
  put_u32(at + 36, header.segment_count);
  put_u64(at + 40, header.sequence);
  put_u32(at + 4, header_crc(Bytes(at, kSegmentHeaderBytes), 0));
}

Result<SegmentHeader> decode_segment_header(Bytes bytes) {
  if (bytes.size() < kSegmentHeaderBytes)
    return corruption("tier log: segment header: expected {} bytes, found {}", kSegmentHeaderBytes,
                      bytes.size());
  const char* const at = bytes.data();
  if (get_u32(at) != kSegmentMagic)
    return corruption("tier log: no segment header: magic {:08x}", get_u32(at));
  if (get_u32(at + 4) != header_crc(bytes, 0))
    return corruption("tier log: segment header fails its checksum");
  if (get_u16(at + 8) != kLogVersion)
    return error(Code::kUnsupported, Scope::kFile, "tier log: version {}; this build reads {}",
                 get_u16(at + 8), kLogVersion);
  const auto shift = static_cast<uint8_t>(at[10]);
  SegmentHeader header;
  header.index = get_u32(at + 12);
  header.log_id = get_u64(at + 16);
  header.segment_size = get_u64(at + 24);
  header.generation = get_u32(at + 32);
  header.segment_count = get_u32(at + 36);
  header.sequence = get_u64(at + 40);
  if (shift < 6 || shift > 12 || header.index >= header.segment_count)
    return corruption("tier log: segment {} of {}, alignment 2^{}", header.index, header.segment_count,
                      shift);
  header.alignment = 1u << shift;
  return header;
}

void encode_record_header(const RecordHeader& header, uint64_t log_id, MutableBytes out) {
  assert(out.size() >= kRecordHeaderBytes);
  char* const at = out.data();
  put_u32(at, kRecordMagic);
  put_u32(at + 8, static_cast<uint8_t>(header.type));
  put_u32(at + 12, header.segment);
  put_u32(at + 16, header.generation);
  put_u32(at + 20, header.payload_crc);
  put_u64(at + 24, header.sequence);
  put_u64(at + 32, header.file);
  put_u64(at + 40, header.offset);
  put_u64(at + 48, header.length);
  put_u64(at + 56, header.address);
  put_u32(at + 4, header_crc(Bytes(at, kRecordHeaderBytes), log_id));
}

Result<RecordHeader> decode_record_header(Bytes bytes, uint64_t log_id) {
  if (bytes.size() < kRecordHeaderBytes)
    return corruption("tier log: record header: expected {} bytes, found {}", kRecordHeaderBytes,
                      bytes.size());
  const char* const at = bytes.data();
  if (get_u32(at) != kRecordMagic) return corruption("tier log: no record: magic {:08x}", get_u32(at));
  if (get_u32(at + 4) != header_crc(bytes, log_id))
    return corruption("tier log: record header fails its checksum");
  const uint32_t type = get_u32(at + 8);
  const uint64_t length = get_u64(at + 48);
  if (type > 255 || !known_type(static_cast<uint8_t>(type)))
    return error(Code::kUnsupported, Scope::kFile, "tier log: record type {} is unknown", type);
  RecordHeader header;
  header.type = static_cast<RecordType>(type);
  header.segment = get_u32(at + 12);
  header.generation = get_u32(at + 16);
  header.payload_crc = get_u32(at + 20);
  header.sequence = get_u64(at + 24);
  header.file = get_u64(at + 32);
  header.offset = get_u64(at + 40);
  header.length = static_cast<uint32_t>(length);
  header.address = get_u64(at + 56);
  if (length > UINT32_MAX || (header.has_payload() && length == 0))
    return corruption("tier log: record of {} bytes", length);
  return header;
}

namespace {

// Whether a record may stand at `at` of this segment, and what it is.
bool read_record(Bytes segment, uint64_t at, const SegmentHeader& expected, RecordHeader* out) {
  if (get_u32(segment.data() + at) != kRecordMagic) return false;
  const auto header = decode_record_header(segment.substr(at, kRecordHeaderBytes), expected.log_id);
  if (!header.ok() || header->segment != expected.index) return false;
  if (header->address != expected.index * expected.segment_size + at) return false;
  *out = *header;
  return true;
}

// Remains of earlier generations are older; with a damaged segment header the newest generation found counts.
void keep_generation(SegmentScan* scan) {
  uint32_t generation = scan->header.generation;
  if (scan->header_damaged) {
    generation = 0;
    for (const auto& record : scan->records) generation = std::max(generation, record.generation);
    for (const auto& record : scan->damaged) generation = std::max(generation, record.header.generation);
    scan->header.generation = generation;
  }
  std::erase_if(scan->records,
                [generation](const RecordHeader& record) { return record.generation != generation; });
  std::erase_if(scan->damaged,
                [generation](const DamagedRecord& record) { return record.header.generation != generation; });
}

}  // namespace

Result<SegmentScan> scan_segment(Bytes segment, const SegmentHeader& expected) {
  SegmentScan scan;
  scan.header = expected;
  if (auto header = decode_segment_header(segment); header.ok()) {
    if (header->log_id != expected.log_id || header->index != expected.index ||
        header->segment_size != expected.segment_size || header->alignment != expected.alignment)
      return corruption(
          "tier log: segment {}: expected log {:016x}, segments of {} bytes aligned to {}; found log "
          "{:016x}, segment {}, {} bytes, {}",
          expected.index, expected.log_id, expected.segment_size, expected.alignment, header->log_id,
          header->index, header->segment_size, header->alignment);
    scan.header = *header;
  } else if (header.status().code() == Code::kUnsupported) {
    return header.status();
  } else {
    scan.header_damaged = true;
  }
  const uint64_t step = expected.alignment;
  uint64_t at = round_up(kSegmentHeaderBytes, step);
  while (at + kRecordHeaderBytes <= segment.size()) {
    RecordHeader record;
    if (!read_record(segment, at, expected, &record) ||
        (!scan.header_damaged && record.generation != scan.header.generation)) {
      scan.skipped_bytes += step;
      at += step;
      continue;
    }
    if (!record.has_payload()) {
      scan.records.push_back(record);
      at += record.space(expected.alignment);
    } else if (at + kRecordHeaderBytes + record.length > segment.size()) {
      scan.damaged.push_back({record, "reaches beyond its segment"});
      at += step;
    } else if (crc32c(segment.substr(at + kRecordHeaderBytes, record.length)) != record.payload_crc) {
      scan.damaged.push_back({record, "payload fails its checksum"});
      at += step;  // a torn payload may be what follows: look in it too
    } else {
      scan.records.push_back(record);
      at += record.space(expected.alignment);
    }
  }
  keep_generation(&scan);
  return scan;
}

}  // namespace swale::tier
