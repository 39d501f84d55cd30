#include "tier/log/log_read.h"

#include <algorithm>
#include <optional>

namespace swale::tier {
namespace {

constexpr uint64_t kHeadBytesMax = kRecordHeaderBytes + checks_bytes_of(1u << 20);

// What is asked for, in bytes of the payload, and the blocks around it.
struct Part {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t first_block = 0;  // its begin
  uint32_t last_block = 0;   // its end
};

LogDamage all_of(uint64_t length, const char* why) { return {{{0, static_cast<uint32_t>(length)}}, why}; }

std::optional<RecordHeader> header_at(const Result<RecordHeader>& found, const RecordPlace& place) {
  if (!found.ok() || found->address != place.address || !found->has_payload()) return std::nullopt;
  return *found;
}

// The header, or the copy at the record's end. None: both are damaged.
Result<std::optional<RecordHeader>> find_header(const ReadLogBytes& read, uint64_t log_id,
                                                const RecordPlace& place, Bytes head) {
  if (const auto header = header_at(decode_record_header(head, log_id), place)) return header;
  char end[kRecordHeaderBytes];
  const MutableBytes bytes(end, sizeof(end));
  SWALE_RETURN_IF_ERROR(read(place.address + place.bytes - kRecordHeaderBytes, bytes));
  return header_at(decode_record_end(Bytes(end, sizeof(end)), log_id), place);
}

std::optional<Part> part_of(const RecordHeader& header, uint64_t address, uint64_t length) {
  const uint64_t payload = header.payload_address();
  if (address < payload || address + length > payload + header.length) return std::nullopt;
  Part part;
  part.begin = static_cast<uint32_t>(address - payload);
  part.end = static_cast<uint32_t>(part.begin + length);
  part.first_block = part.begin / kCheckedBlockBytes * kCheckedBlockBytes;
  part.last_block = static_cast<uint32_t>(
      std::min<uint64_t>(header.length, round_up(uint64_t{part.end}, uint64_t{kCheckedBlockBytes})));
  return part;
}

LogDamage damage_in(const RecordHeader& header, Bytes checks, const Part& part, Bytes blocks) {
  LogDamage damage;
  for (PayloadRange range : damaged_ranges(header, checks, part.first_block, blocks)) {
    range.begin = std::max(range.begin, part.begin) - part.begin;
    range.end = std::min(range.end, part.end) - part.begin;
    if (range.begin < range.end) damage.ranges.push_back(range);
  }
  if (!damage.ranges.empty()) damage.why = "fails its checksum";
  return damage;
}

constexpr const char* kNoHeader = "has a damaged header and a damaged end";
constexpr const char* kNoChecks = "has damaged checksums";
constexpr const char* kNotThere = "is another one than the map says";

}  // namespace

Result<LogDamage> read_payload(const ReadLogBytes& read, uint64_t log_id, const RecordPlace& place,
                               uint64_t address, MutableBytes out) {
  char head[kHeadBytesMax];
  const MutableBytes head_bytes(head, std::min<uint64_t>(sizeof(head), place.bytes));
  SWALE_RETURN_IF_ERROR(read(place.address, head_bytes));
  SWALE_ASSIGN_OR_RETURN(const auto header,
                         find_header(read, log_id, place, Bytes(head_bytes.data(), head_bytes.size())));
  if (!header) return all_of(out.size(), kNoHeader);
  const auto part = part_of(*header, address, out.size());
  if (!part || header->head_bytes() > head_bytes.size()) return all_of(out.size(), kNotThere);
  const Bytes checks(head + kRecordHeaderBytes, header->checks_bytes());
  if (!checks_are_whole(*header, checks)) return all_of(out.size(), kNoChecks);
  const uint64_t first = header->payload_address() + part->first_block;
  const uint32_t bytes = part->last_block - part->first_block;
  if (bytes == out.size()) {
    SWALE_RETURN_IF_ERROR(read(first, out));
    return damage_in(*header, checks, *part, Bytes(out.data(), out.size()));
  }
  std::string blocks(bytes, '\0');
  SWALE_RETURN_IF_ERROR(read(first, blocks));
  std::copy_n(blocks.data() + (part->begin - part->first_block), out.size(), out.data());
  return damage_in(*header, checks, *part, blocks);
}

uint64_t verify_bytes(const RecordPlace& place, uint64_t address, uint64_t length) {
  // The payload's begin is not known before the header is: a block more, or the whole record.
  const uint64_t end = address + length - place.address + kCheckedBlockBytes;
  return std::min(place.bytes, end);
}

Result<LogDamage> verify_payload(const ReadLogBytes& read, uint64_t log_id, const RecordPlace& place,
                                 Bytes record, uint64_t address, uint64_t length) {
  SWALE_ASSIGN_OR_RETURN(const auto header, find_header(read, log_id, place, record));
  if (!header) return all_of(length, kNoHeader);
  const auto part = part_of(*header, address, length);
  if (!part || header->head_bytes() + part->last_block > record.size()) return all_of(length, kNotThere);
  const Bytes checks = record.substr(kRecordHeaderBytes, header->checks_bytes());
  if (!checks_are_whole(*header, checks)) return all_of(length, kNoChecks);
  return damage_in(
      *header, checks, *part,
      record.substr(header->head_bytes() + part->first_block, part->last_block - part->first_block));
}

}  // namespace swale::tier
