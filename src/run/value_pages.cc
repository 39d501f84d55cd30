#include "run/value_pages.h"

#include <cassert>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {
namespace {

constexpr int kPositionBits = 42;
constexpr int kWriterLowBits = 22;
constexpr int kWriterHighBits = 2;
static_assert(kRanksMax <= 1u << (kWriterLowBits + kWriterHighBits));
static_assert(kLargeValueBytesMax <= size_t{1} << (32 - kWriterHighBits));

uint32_t page_checksum(Bytes page, PartitionNumber writer) {
  return crc32c_extend(partition_seed(writer), page.substr(0, kValuePageBytes - sizeof(uint32_t)));
}

}  // namespace

void seal_value_page(char* page, PartitionNumber writer, ValuePageTrailer trailer) {
  put_fixed(page + kValuePagePayloadBytes, trailer);
  put_u32(page + kValuePageBytes - sizeof(uint32_t), page_checksum({page, kValuePageBytes}, writer));
}

Result<ValuePageTrailer> verify_value_page(Bytes page, PartitionNumber writer, uint64_t number,
                                           std::string_view path) {
  const auto problem = [&](std::string_view what) {
    return corruption("{}: offset {}: {}; run `swale verify`", path, number * kValuePageBytes, what);
  };
  if (page.size() != kValuePageBytes)
    return problem(fmt::format("a page of {} bytes, expected {}", page.size(), kValuePageBytes));
  const ValuePageTrailer trailer = value_page_trailer(page);
  const uint32_t found = page_checksum(page, writer);
  if (found != trailer.crc32c) {
    return problem(
        fmt::format("a page of values has checksum {:08x}, expected {:08x}", found, trailer.crc32c));
  }
  if (trailer.page != static_cast<uint32_t>(number)) {
    return problem(fmt::format("expected page {} of rank {}, found page {} (a misdirected read or write)",
                               number, writer, trailer.page));
  }
  const bool starts = trailer.first_start < kValuePagePayloadBytes;
  if (starts != (trailer.values > 0) || (!starts && trailer.first_start != kNoValueStarts))
    return problem("a page of values has impossible numbers");
  return trailer;
}

void put_page_pointer(char* out, const ValuePointer& pointer) {
  assert(pointer.offset <= kValuePositionMax && pointer.writer < kRanksMax);
  assert(pointer.value_bytes >= kPagePointerBytes && pointer.value_bytes <= kLargeValueBytesMax);
  put_u64(out, pointer.offset | uint64_t{pointer.writer} << kPositionBits);
  put_u32(out + 8, pointer.writer >> kWriterLowBits | (pointer.value_bytes - 1) << kWriterHighBits);
}

void encode_paged_record(Bytes key, Bytes prefix, const ValuePointer& pointer, char* out) {
  out = put_varint(put_varint(out, key.size()), prefix.size() + kPagePointerBytes);
  out += key.copy(out, key.size());
  out += prefix.copy(out, prefix.size());
  put_page_pointer(out, pointer);
}

Result<LargeValue> decode_paged_value(Bytes stored, std::string_view what) {
  LargeValue value;
  if (stored.size() >= kPagePointerBytes) {
    value.prefix = stored.substr(0, stored.size() - kPagePointerBytes);
    const uint64_t front = get_u64(stored.data() + value.prefix.size());
    const uint32_t back = get_u32(stored.data() + value.prefix.size() + 8);
    value.pointer.offset = front & kValuePositionMax;
    value.pointer.writer = PartitionNumber(static_cast<uint32_t>(front >> kPositionBits) |
                                           (back & ((1u << kWriterHighBits) - 1)) << kWriterLowBits);
    value.pointer.value_bytes = (back >> kWriterHighBits) + 1;
    if (value.pointer.value_bytes >= kPagePointerBytes && value.prefix.size() <= value.pointer.value_bytes)
      return value;
  }
  return corruption("{}: a pointer to a value has impossible numbers; run `swale verify`", what);
}

}  // namespace swale::run
