#include "tier/log/log_format.h"

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
  char bytes[kRecordHeaderBytes];  // one call for the id and what follows the checksum
  static_assert(sizeof(log_id) == kCrcFrom);
  std::memcpy(bytes, header.data(), sizeof(bytes));
  put_u64(bytes, log_id);
  return crc32c(Bytes(bytes, sizeof(bytes)));
}

bool known_type(uint8_t type) {
  return type >= static_cast<uint8_t>(RecordType::kWrite) &&
         type <= static_cast<uint8_t>(RecordType::kTruncateCancelled);
}

void encode_record(const RecordHeader& header, uint32_t magic, uint64_t log_id, MutableBytes out) {
  assert(out.size() >= kRecordHeaderBytes);
  char* const at = out.data();
  put_u32(at, magic);
  put_u32(at + 8, static_cast<uint8_t>(header.type));
  put_u32(at + 12, header.segment);
  put_u32(at + 16, header.generation);
  put_u32(at + 20, header.check);
  put_u64(at + 24, header.sequence);
  put_u64(at + 32, header.file);
  put_u64(at + 40, header.offset);
  put_u32(at + 48, header.length);
  put_u32(at + 52, header.unsettled);
  put_u64(at + 56, header.address);
  put_u32(at + 4, header_crc(Bytes(at, kRecordHeaderBytes), log_id));
}

Result<RecordHeader> decode_record(Bytes bytes, uint32_t magic, uint64_t log_id) {
  if (bytes.size() < kRecordHeaderBytes)
    return corruption("tier log: record header: expected {} bytes, found {}", kRecordHeaderBytes,
                      bytes.size());
  const char* const at = bytes.data();
  if (get_u32(at) != magic) return corruption("tier log: no record: magic {:08x}", get_u32(at));
  if (get_u32(at + 4) != header_crc(bytes, log_id))
    return corruption("tier log: record header fails its checksum");
  const uint32_t type = get_u32(at + 8);
  if (type > 255 || !known_type(static_cast<uint8_t>(type)))
    return error(Code::kUnsupported, Scope::kFile, "tier log: record type {} is unknown", type);
  RecordHeader header;
  header.type = static_cast<RecordType>(type);
  header.segment = get_u32(at + 12);
  header.generation = get_u32(at + 16);
  header.check = get_u32(at + 20);
  header.sequence = get_u64(at + 24);
  header.file = get_u64(at + 32);
  header.offset = get_u64(at + 40);
  header.length = get_u32(at + 48);
  header.unsettled = get_u32(at + 52);
  header.address = get_u64(at + 56);
  if (header.has_payload() && header.length == 0) return corruption("tier log: record of 0 bytes");
  return header;
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
  put_u64(at + 48, header.settled);
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
  header.settled = get_u64(at + 48);
  if (shift < 6 || shift > 12 || header.index >= header.segment_count)
    return corruption("tier log: segment {} of {}, alignment 2^{}", header.index, header.segment_count,
                      shift);
  header.alignment = 1u << shift;
  return header;
}

void encode_record_header(const RecordHeader& header, uint64_t log_id, MutableBytes out) {
  encode_record(header, kRecordMagic, log_id, out);
}

void encode_record_end(const RecordHeader& header, uint64_t log_id, MutableBytes out) {
  encode_record(header, kRecordEndMagic, log_id, out);
}

Result<RecordHeader> decode_record_header(Bytes bytes, uint64_t log_id) {
  return decode_record(bytes, kRecordMagic, log_id);
}

Result<RecordHeader> decode_record_end(Bytes bytes, uint64_t log_id) {
  return decode_record(bytes, kRecordEndMagic, log_id);
}

uint32_t make_checks(Bytes payload, MutableBytes checks) {
  if (payload.size() <= kCheckedBlockBytes) return crc32c(payload);
  char* at = checks.data();
  for (size_t from = 0; from < payload.size(); from += kCheckedBlockBytes, at += 4)
    put_u32(at, crc32c(payload.substr(from, kCheckedBlockBytes)));
  return crc32c(Bytes(checks.data(), static_cast<size_t>(at - checks.data())));
}

bool checks_are_whole(const RecordHeader& header, Bytes checks) {
  const uint32_t bytes = header.checks_bytes();
  return bytes == 0 || (checks.size() >= bytes && crc32c(checks.substr(0, bytes)) == header.check);
}

std::vector<PayloadRange> damaged_ranges(const RecordHeader& header, Bytes checks, uint32_t from,
                                         Bytes payload) {
  assert(from % kCheckedBlockBytes == 0);
  std::vector<PayloadRange> ranges;
  const bool one = header.checks_bytes() == 0;
  for (size_t at = 0; at < payload.size(); at += kCheckedBlockBytes) {
    const Bytes block = payload.substr(at, kCheckedBlockBytes);
    const auto begin = static_cast<uint32_t>(from + at);
    if (crc32c(block) == (one ? header.check : get_u32(checks.data() + begin / kCheckedBlockBytes * 4)))
      continue;
    const auto end = static_cast<uint32_t>(begin + block.size());
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  }
  return ranges;
}

namespace {

// A segment, record by record.
class Scanner {
 public:
  Scanner(Bytes segment, const SegmentHeader& expected, SegmentScan* scan)
      : segment_(segment), expected_(expected), begin_(expected.index * expected.segment_size), scan_(scan) {
    const uint64_t tail = segment_tail_bytes(expected.alignment);
    end_ =
        std::min<uint64_t>(segment.size(), expected.segment_size > tail ? expected.segment_size - tail : 0);
  }

  void run() {
    const uint64_t step = expected_.alignment;
    uint64_t at = round_up(kSegmentHeaderBytes, step);
    free_from_ = at;
    while (at + step <= end_) {
      RecordHeader record;
      if (!record_at(at, &record) && !record_that_ends_at(at + step, &record)) {
        at += step;
        continue;
      }
      if (!both_copies(record)) scan_->mended.push_back(record);
      const bool whole = take(record);
      if (!whole && scan_->generation_guessed) {  // it may be a remain that newer records lie over
        at += step;
        continue;
      }
      const uint64_t begin = record.address - begin_;
      scan_->skipped_bytes += begin - free_from_;
      at = free_from_ = begin + record.space(expected_.alignment);
    }
    if (end_ > free_from_) scan_->skipped_bytes += end_ - free_from_;
  }

 private:
  // Whether what was decoded may stand where it says. `*out` is set if so.
  bool fits(const Result<RecordHeader>& found, RecordHeader* out) const {
    if (!found.ok() || found->segment != expected_.index || found->address < begin_ + free_from_)
      return false;
    if (!scan_->generation_guessed && found->generation != scan_->header.generation) return false;
    if (found->address - begin_ + found->space(expected_.alignment) > end_) return false;
    *out = *found;
    return true;
  }

  bool record_at(uint64_t at, RecordHeader* out) const {
    if (get_u32(segment_.data() + at) != kRecordMagic) return false;
    return fits(decode_record_header(segment_.substr(at, kRecordHeaderBytes), expected_.log_id), out) &&
           out->address == begin_ + at;
  }

  // Its header is damaged: the search has come past it.
  bool record_that_ends_at(uint64_t end, RecordHeader* out) const {
    const uint64_t at = end - kRecordHeaderBytes;
    if (get_u32(segment_.data() + at) != kRecordEndMagic) return false;
    if (!fits(decode_record_end(segment_.substr(at, kRecordHeaderBytes), expected_.log_id), out) ||
        out->address - begin_ + out->space(expected_.alignment) != end)
      return false;
    return true;
  }

  bool both_copies(const RecordHeader& record) const {
    const uint64_t at = record.address - begin_;
    const uint64_t end = at + record.space(expected_.alignment) - kRecordHeaderBytes;
    return decode_record_header(segment_.substr(at, kRecordHeaderBytes), expected_.log_id).ok() &&
           decode_record_end(segment_.substr(end, kRecordHeaderBytes), expected_.log_id).ok();
  }

  // Whether it is whole.
  bool take(const RecordHeader& record) {
    if (!record.has_payload()) {
      scan_->records.push_back(record);
      return true;
    }
    const uint64_t at = record.address - begin_;
    const Bytes checks = segment_.substr(at + kRecordHeaderBytes, record.checks_bytes());
    if (!checks_are_whole(record, checks)) {
      scan_->damaged.push_back({record, "its checksums are damaged", {{0, record.length}}});
      return false;
    }
    auto ranges = damaged_ranges(record, checks, 0, segment_.substr(at + record.head_bytes(), record.length));
    if (!ranges.empty()) {
      scan_->damaged.push_back({record, "its payload fails its checksums", std::move(ranges)});
      return false;
    }
    scan_->records.push_back(record);
    return true;
  }

  const Bytes segment_;
  const SegmentHeader& expected_;
  const uint64_t begin_;
  uint64_t end_;
  uint64_t free_from_ = 0;  // end of the last record
  SegmentScan* const scan_;
};

// Remains of earlier generations are older; if both copies of the header are damaged, the newest generation
// found counts.
void keep_generation(SegmentScan* scan) {
  uint32_t generation = 0;
  for (const auto& record : scan->records) generation = std::max(generation, record.generation);
  for (const auto& record : scan->damaged) generation = std::max(generation, record.header.generation);
  scan->header.generation = generation;
  const auto old = [generation](const RecordHeader& record) { return record.generation != generation; };
  std::erase_if(scan->records, old);
  std::erase_if(scan->mended, old);
  std::erase_if(scan->damaged, [&](const DamagedRecord& record) { return old(record.header); });
}

// Reads both copies of the header: the newer one counts, because an erasure writes them one after the other.
Status read_headers(Bytes segment, const SegmentHeader& expected, SegmentScan* scan) {
  int whole = 0;
  for (const uint64_t at : {uint64_t{0}, expected.segment_size - segment_tail_bytes(expected.alignment)}) {
    if (at + kSegmentHeaderBytes > segment.size()) continue;
    const auto header = decode_segment_header(segment.substr(at, kSegmentHeaderBytes));
    if (header.status().code() == Code::kUnsupported) return header.status();
    if (!header.ok()) continue;
    if (header->log_id != expected.log_id || header->index != expected.index ||
        header->segment_size != expected.segment_size || header->alignment != expected.alignment)
      return corruption(
          "tier log: segment {}: expected log {:016x}, segments of {} bytes aligned to {}; found log "
          "{:016x}, segment {}, {} bytes, {}",
          expected.index, expected.log_id, expected.segment_size, expected.alignment, header->log_id,
          header->index, header->segment_size, header->alignment);
    if (whole == 0 || header->generation > scan->header.generation) scan->header = *header;
    ++whole;
  }
  scan->header_damaged = whole < 2;
  scan->generation_guessed = whole == 0;
  return {};
}

}  // namespace

Result<SegmentScan> scan_segment(Bytes segment, const SegmentHeader& expected, const KnownGeneration* known) {
  SegmentScan scan;
  scan.header = expected;
  SWALE_RETURN_IF_ERROR(read_headers(segment, expected, &scan));
  const bool behind =
      known != nullptr && !scan.generation_guessed && scan.header.generation < known->generation;
  if (known != nullptr && known->exact && !scan.generation_guessed &&
      scan.header.generation > known->generation)
    return corruption(
        "tier log: segment {}: its header has generation {}, the seal of the log's clean end says {}: the "
        "log was written after it was sealed",
        expected.index, scan.header.generation, known->generation);
  if (behind || (known != nullptr && known->exact && scan.generation_guessed)) {
    scan.header.generation = known->generation;
    scan.header_damaged = true;
    scan.generation_guessed = false;
  }
  Scanner(segment, expected, &scan).run();
  if (!scan.generation_guessed) return scan;
  keep_generation(&scan);
  if (known == nullptr || scan.header.generation >= known->generation) return scan;
  scan.header.generation = known->generation;  // all that was found was erased long ago
  scan.records.clear();
  scan.mended.clear();
  scan.damaged.clear();
  return scan;
}

std::vector<DamagedRecord> take_torn(std::vector<SegmentScan>* segments) {
  uint64_t settled = 0;
  for (const SegmentScan& scan : *segments) {
    settled = std::max(settled, scan.header.settled);
    for (const RecordHeader& record : scan.records) settled = std::max(settled, record.settled());
    for (const DamagedRecord& record : scan.damaged) settled = std::max(settled, record.header.settled());
  }
  std::vector<DamagedRecord> torn;
  for (SegmentScan& scan : *segments) {
    std::erase_if(scan.damaged, [&](DamagedRecord& record) {
      if (record.header.sequence <= settled) return false;
      const uint64_t address = record.header.address;
      std::erase_if(scan.mended, [&](const RecordHeader& each) { return each.address == address; });
      torn.push_back(std::move(record));
      return true;
    });
  }
  return torn;
}

std::array<std::vector<LogWrite>, 2> mends_of(const std::vector<SegmentScan>& segments,
                                              const std::vector<DamagedRecord>& torn, uint64_t log_id,
                                              uint32_t alignment) {
  std::array<std::vector<LogWrite>, 2> rounds;
  std::string copy(kRecordHeaderBytes, '\0');
  const auto end_of = [alignment](const RecordHeader& record) {
    return record.address + record.space(alignment) - kRecordHeaderBytes;
  };
  const auto add = [&](const RecordHeader& record) {
    encode_record_header(record, log_id, copy);
    rounds[0].push_back({record.address, copy});
    encode_record_end(record, log_id, copy);
    rounds[1].push_back({end_of(record), copy});
  };
  for (const DamagedRecord& each : torn) {
    // Not zeros: perhaps only this header says that a damaged record before it was acknowledged, and is lost.
    RecordHeader mark = each.header;
    mark.type = RecordType::kSettled;
    mark.file = mark.offset = 0;
    mark.length = mark.check = 0;
    if (end_of(mark) != end_of(each.header))
      rounds[1].push_back({end_of(each.header), std::string(kRecordHeaderBytes, '\0')});
    add(mark);
  }
  for (const SegmentScan& scan : segments)
    for (const RecordHeader& record : scan.mended) add(record);
  return rounds;
}

}  // namespace swale::tier
