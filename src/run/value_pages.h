// Value pages: where a directory of the indirect format keeps values, in the order in which their writer
// appended them; and the pointers of 12 bytes that travel to the homes of the keys (deltafs-streaming-2020,
// section 4.2, "simple indirection").
//
//   file:    page, page, …; each 4,096 bytes
//   page:    payload of 4,072 bytes | epoch_id: u64 | epoch: u32 | page: u32 | values: u16 | first_start: u16
//            | crc32c: u32
//   pointer (the last 12 bytes of what stands in the value's place): position + 2^42 (writer mod 2^22): u64 |
//           writer / 2^22 + 4 (value_bytes - 1): u32
//
// The payloads of all pages are one stream. A value is `value_bytes` bytes of it from `position` on; it may
// span pages. The first value of an epoch begins a page. After the last value of an epoch the page is filled
// up with zeros. Values of less than 12 bytes stay in their records. The checksum is extended from
// partition_seed(writer) over the page's first 4,092 bytes: a page of another writer, epoch or place does not
// pass.
//
// DO NOT CHANGE what stands here: it is on disk. docs/formats/value-pages.md has the rules around it,
// docs/design/lossy.md the reasons.
// Threads: free functions. Errors: kCorruption that names file and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/format.h"
#include "run/value_format.h"

namespace swale::run {

inline constexpr size_t kValuePageBytes = 4096;
inline constexpr size_t kValuePagePayloadBytes = 4072;
inline constexpr uint64_t kValuePositionMax = (uint64_t{1} << 42) - 1;
inline constexpr uint16_t kNoValueStarts = 0xffff;

struct ValuePageTrailer {
  uint64_t epoch_id;
  EpochNumber epoch;
  uint32_t page;         // its number in the file, low 32 bits
  uint16_t values;       // that begin in this page
  uint16_t first_start;  // payload offset of the first of them; kNoValueStarts if there is none
  uint32_t crc32c;
};
static_assert(sizeof(ValuePageTrailer) == 24 && offsetof(ValuePageTrailer, crc32c) == 20);
static_assert(kValuePagePayloadBytes + sizeof(ValuePageTrailer) == kValuePageBytes);

constexpr uint64_t page_of(uint64_t position) { return position / kValuePagePayloadBytes; }
constexpr uint64_t pages_of(uint64_t payload_bytes) {
  return (payload_bytes + kValuePagePayloadBytes - 1) / kValuePagePayloadBytes;
}

inline ValuePageTrailer value_page_trailer(Bytes page) {
  return get_fixed<ValuePageTrailer>(page.data() + kValuePagePayloadBytes);
}

// Completes a page whose payload stands in `page`; `trailer` without its checksum.
void seal_value_page(char* page, PartitionNumber writer, ValuePageTrailer trailer);

// Checks size, checksum, number, and that its own numbers are possible.
Result<ValuePageTrailer> verify_value_page(Bytes page, PartitionNumber writer, uint64_t number,
                                           std::string_view path);

// `pointer.offset` is the position. Requires a position of at most kValuePositionMax, 12..kLargeValueBytesMax
// value bytes, a writer below kRanksMax.
void put_page_pointer(char* out, const ValuePointer& pointer);
// The record of a value in pages, whose first bytes are `prefix`. Requires sizes within the limits of a
// record, and encoded_record_bytes(key.size(), prefix.size() + kPagePointerBytes) of room.
void encode_paged_record(Bytes key, Bytes prefix, const ValuePointer& pointer, char* out);
// kCorruption, naming `what`, for bytes that are none. `stored`: what stands in the value's place.
Result<LargeValue> decode_paged_value(Bytes stored, std::string_view what);

// If values lie side by side, the sum of this over all of them is that of one value from the first begin to
// the last end. So pointers that overlap, or leave something out, are noticed without a list of them.
constexpr uint64_t value_tile(uint64_t begin, uint64_t end) {
  const auto mixed = [](uint64_t at) {
    at = (at ^ at >> 30) * 0xbf58476d1ce4e5b9;
    at = (at ^ at >> 27) * 0x94d049bb133111eb;
    return at ^ at >> 31;
  };
  return mixed(end + 1) - mixed(begin + 1);
}

// What stands in a record of a run in the value's place, whatever the directory's rule is.
inline Result<LargeValue> decode_stored_value(ValueRule rule, Bytes stored, std::string_view what) {
  return rule == ValueRule::kPaged ? decode_paged_value(stored, what) : decode_large_value(stored, what);
}

}  // namespace swale::run
