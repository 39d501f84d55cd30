// Records and segments of the tier's log: whatever is decoded encodes to the same bytes, and a scan never
// reads beyond its segment or takes a damaged record for a whole one. Input: 16-byte edits (offset u32, value
// u64, unused) of a valid log.
#include <algorithm>
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "tier/log/file_table_format.h"
#include "tier/log/kept_file.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"

namespace swale::tier::tier_log_fuzz {
namespace {

using fuzz::require;

constexpr uint64_t kLogId = 42;

std::string make_log(SegmentHeader* header) {
  *header = {1, 3, kLogId, 65536, 2, 64, 10, 0};
  std::string bytes(header->segment_size, '\0');
  encode_segment_header(*header, bytes);
  encode_segment_header(*header, std::span(bytes).last(kSegmentHeaderBytes));
  uint64_t at = 64;
  for (uint64_t i = 0; i < 8; ++i) {
    RecordHeader record;
    record.type = i == 5 ? RecordType::kPunch : i == 6 ? RecordType::kTruncate : RecordType::kWrite;
    record.segment = 1;
    record.generation = 3;
    record.sequence = 11 + i;
    record.file = 1;
    record.offset = i * 512;
    record.length = i % 2 ? 300 : 9000;  // one block, and three
    record.address = header->segment_size + at;
    const std::string payload(record.payload_bytes(), static_cast<char>('a' + i));
    const auto place = std::span(bytes).subspan(at);
    record.check = make_checks(payload, place.subspan(kRecordHeaderBytes));
    encode_record_header(record, kLogId, place);
    encode_record_end(record, kLogId, place.subspan(record.space(64) - kRecordHeaderBytes));
    bytes.replace(at + record.head_bytes(), payload.size(), payload);
    at += record.space(64);
  }
  return bytes;
}

void check_scan(Bytes segment, const SegmentHeader& expected) {
  const auto scan = scan_segment(segment, expected);
  if (!scan.ok()) return;
  uint64_t end = 0;
  for (const RecordHeader& record : scan->records) {
    const uint64_t at = record.address - expected.index * expected.segment_size;
    require(at >= end && record.generation == scan->header.generation);
    end = at + record.space(64);
    require(end <= segment.size());
    if (!record.has_payload()) continue;
    const Bytes checks = segment.substr(at + kRecordHeaderBytes, record.checks_bytes());
    require(checks_are_whole(record, checks));
    require(
        damaged_ranges(record, checks, 0, segment.substr(at + record.head_bytes(), record.length)).empty());
  }
  for (const DamagedRecord& record : scan->damaged)
    for (const PayloadRange& range : record.ranges)
      require(range.begin < range.end && range.end <= record.header.length);
}

// The input as a seal whose checksum is right: what is decoded encodes to what decodes to the same.
void check_seal(Bytes input) {
  if (input.size() < kSealHeadBytes) return;
  std::string bytes(input);
  put_u32(bytes.data(), kSealMagic);
  put_u32(bytes.data() + 4, crc32c(Bytes(bytes).substr(8)));
  const auto seal = decode_log_seal(bytes, "seal");
  if (!seal.ok()) return;
  const auto again = decode_log_seal(encode_log_seal(*seal), "seal");
  require(again.ok() && *again == *seal);
}

// The input as an entry of the table of files, and as a kept file's document, whose checksums are right.
void check_files(Bytes input) {
  std::string entry(input.substr(0, input.size() / kFileTableUnit * kFileTableUnit));
  if (entry.size() >= kFileTableUnit) {
    put_u32(entry.data(), kFileEntryMagic);
    put_u32(entry.data() + 8, static_cast<uint32_t>(entry.size()));
    put_u64(entry.data() + 16, kFileTableHeadBytes);
    char id[8];
    put_u64(id, kLogId);
    put_u32(entry.data() + 4, crc32c_extend(crc32c(Bytes(id, 8)), Bytes(entry).substr(8)));
  }
  std::string table = encode_file_table({}, kLogId) + entry;
  for (const FileEntry& each : decode_file_table(table, {kLogId}, "files").entries) {
    const std::string again =
        encode_file_table({}, kLogId) + encode_file_entry(each, kLogId, kFileTableHeadBytes);
    const auto scan = decode_file_table(again, {kLogId}, "files");
    require(scan.entries.size() == 1 && scan.entries[0] == each);
  }
  static_cast<void>(decode_file_table(input, {kLogId}, "files"));
  static_cast<void>(decode_kept_head(input, "kept"));
  KeptFile shown;
  shown.file = 7;
  const std::string head = encode_kept_head(shown, input, kKeptHeadBytes);
  const auto kept = decode_kept(head, input, "kept");
  if (!kept.ok()) return;
  const std::string document = encode_kept_document(*kept);
  const auto again = decode_kept(encode_kept_head(*kept, document, kKeptHeadBytes), document, "kept");
  require(again.ok() && *again == *kept);
}

void run(Bytes input) {
  SegmentHeader expected;
  std::string log = make_log(&expected);
  if (const auto record = decode_record_header(input, kLogId); record.ok()) {
    std::string again(kRecordHeaderBytes, '\0');
    encode_record_header(*record, kLogId, again);
    require(get_u32(again.data() + 4) == get_u32(input.data() + 4));
  }
  static_cast<void>(decode_segment_header(input));
  const bool reseal = !input.empty() && (input[0] & 1) != 0;
  for (size_t at = 0; at + 16 <= input.size(); at += 16) {
    const uint64_t where = get_u32(input.data() + at) % (log.size() - 8);
    put_u64(log.data() + where, get_u64(input.data() + at + 8));
    if (!reseal || where < 64) continue;
    // Makes the edited header valid, so that the checks behind the checksum are reached.
    const uint64_t header = where / 64 * 64;
    char id[8];
    put_u64(id, kLogId);
    put_u32(log.data() + header, kRecordMagic);
    put_u32(log.data() + header + 4,
            crc32c_extend(crc32c(Bytes(id, 8)), Bytes(log).substr(header + 8, kRecordHeaderBytes - 8)));
  }
  const KnownGeneration known{input.empty() ? 0u : static_cast<uint32_t>(input[0]) % 5,
                              input.size() % 2 == 0};
  static_cast<void>(scan_segment(log, expected, &known));
  check_seal(input);
  check_files(input);
  check_scan(log, expected);
  check_scan(Bytes(log).substr(0, input.size() % log.size()), expected);
}

}  // namespace

SWALE_FUZZ_TARGET(tier_log_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::tier::tier_log_fuzz
