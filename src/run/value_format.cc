#include "run/value_format.h"

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {
namespace {

Status damaged(std::string_view path, uint64_t offset, std::string_view problem) {
  return corruption("{}: offset {}: {}; run `swale verify`", path, offset, problem);
}

// Usually more than kValueBytesMax; fewer where frames are small.
bool possible(uint32_t value_bytes) { return value_bytes != 0 && value_bytes <= kLargeValueBytesMax; }

uint32_t head_checksum(const ValueHead& head, Bytes encoded) {
  return crc32c_extend(epoch_seed(head.writer, head.epoch_id), encoded.substr(8));
}

}  // namespace

uint32_t value_piece_checksum(uint32_t epoch_seed, uint64_t offset, Bytes piece) {
  char place[8];
  put_u64(place, offset);
  return crc32c_extend(crc32c_extend(epoch_seed, {place, sizeof(place)}), piece);
}

std::string encode_value_head(ValueHead* head) {
  std::string out;
  out.reserve(value_head_bytes(head->value_bytes));
  append_u32(&out, kValueMagic);
  append_u32(&out, 0);
  append_u64(&out, head->offset);
  append_u64(&out, head->epoch_id);
  append_u64(&out, head->key_hash);
  append_u32(&out, head->epoch);
  append_u32(&out, head->writer);
  append_u32(&out, head->value_bytes);
  append_u32(&out, 0);
  for (const uint32_t piece : head->pieces) append_u32(&out, piece);
  head->checksum = head_checksum(*head, out);
  put_u32(out.data() + 4, head->checksum);
  return out;
}

Result<size_t> peek_value_head(Bytes front, uint64_t offset, std::string_view path) {
  if (front.size() < kValueHeadBytes || get_u32(front.data()) != kValueMagic)
    return damaged(path, offset, "no value begins there");
  const uint32_t value_bytes = get_u32(front.data() + 40);
  if (!possible(value_bytes))
    return damaged(path, offset, fmt::format("a value of {} bytes there", value_bytes));
  return value_head_bytes(value_bytes);
}

Result<ValueHead> decode_value_head(Bytes bytes, PartitionNumber writer, uint64_t offset,
                                    std::string_view path) {
  SWALE_ASSIGN_OR_RETURN(const size_t head_bytes, peek_value_head(bytes, offset, path));
  if (bytes.size() != head_bytes)
    return damaged(path, offset, fmt::format("a head of {} bytes, expected {}", head_bytes, bytes.size()));
  ValueHead head;
  head.checksum = get_u32(bytes.data() + 4);
  head.offset = get_u64(bytes.data() + 8);
  head.epoch_id = get_u64(bytes.data() + 16);
  head.key_hash = get_u64(bytes.data() + 24);
  head.epoch = EpochNumber(get_u32(bytes.data() + 32));
  head.writer = PartitionNumber(get_u32(bytes.data() + 36));
  head.value_bytes = get_u32(bytes.data() + 40);
  const uint32_t found = head_checksum(head, bytes);
  if (found != head.checksum) {
    return damaged(path, offset,
                   fmt::format("a value's head has checksum {:08x}, expected {:08x}", found, head.checksum));
  }
  if (head.offset != offset || head.writer != writer) {
    return damaged(path, offset,
                   fmt::format("expected a value of rank {} at {}, found one of rank {} at {} (a misdirected "
                               "read or write)",
                               writer, offset, head.writer, head.offset));
  }
  for (size_t at = kValueHeadBytes; at < bytes.size(); at += sizeof(uint32_t))
    head.pieces.push_back(get_u32(bytes.data() + at));
  return head;
}

std::string encode_large_value(const LargeValue& value) {
  std::string out(value.prefix);
  append_u64(&out, value.pointer.offset);
  append_u32(&out, value.pointer.value_bytes);
  append_u32(&out, value.pointer.writer);
  append_u32(&out, value.pointer.checksum);
  append_u32(&out, 0);
  return out;
}

Result<LargeValue> decode_large_value(Bytes stored, std::string_view what) {
  LargeValue value;
  if (stored.size() >= kPointerBytes) {
    value.prefix = stored.substr(0, stored.size() - kPointerBytes);
    const char* const at = stored.data() + value.prefix.size();
    value.pointer = {get_u64(at), get_u32(at + 8), PartitionNumber(get_u32(at + 12)), get_u32(at + 16)};
    // So that no offset in the log overflows.
    const bool place = value.pointer.offset <= uint64_t{1} << 62;
    if (place && possible(value.pointer.value_bytes) && value.prefix.size() <= value.pointer.value_bytes)
      return value;
  }
  return corruption("{}: a pointer to a value has impossible numbers; run `swale verify`", what);
}

SegmentRecord values_segment(const ValueRange& range, EpochNumber epoch, uint64_t epoch_id) {
  SegmentRecord segment;
  segment.index_offset = range.offset;
  segment.epoch_id = epoch_id;
  segment.records = range.values;
  segment.epoch = epoch;
  segment.stride = static_cast<uint32_t>(range.bytes);
  segment.overflow_units = static_cast<uint32_t>(range.bytes >> 32);
  segment.flags = kAuxiliarySegment | kValuesSegment;
  return segment;
}

SegmentRecord table_segment(const ValueRange& range, EpochNumber epoch, uint64_t epoch_id) {
  SegmentRecord segment = values_segment(range, epoch, epoch_id);
  segment.flags = kAuxiliarySegment | kTableSegment;
  return segment;
}

ValueRange range_of(const SegmentRecord& segment) {
  return {segment.index_offset, uint64_t{segment.overflow_units} << 32 | segment.stride, segment.records};
}

}  // namespace swale::run
