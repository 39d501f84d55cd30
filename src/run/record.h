// Record: one value of one key as bytes, on the wire, in memtables and in variable runs.
//
// Format: key_bytes: varint | value_bytes: varint | key | value
//   A value of more than 16,384 bytes lies in a value log (value_format.h). Its record is a *large* one:
//   value_bytes is 16,384 + n, and in the value's place stand n bytes: its first n - 24 bytes, then a
//   pointer. Where a directory keeps values in pages (value_pages.h), those of less than 12 bytes stand in
//   their records; else what stands in the value's place ends with a pointer of 12 bytes, and no record is
//   large.
// Limits: keys of 1..255 bytes, values of 0..16,384 bytes, 24..16,408 bytes in the place of a larger one.
// Threads: free functions.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/copy.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/format.h"

namespace swale::run {

inline constexpr size_t kKeyBytesMax = 255;
inline constexpr size_t kValueBytesMax = 16 * kKiB;
inline constexpr size_t kPointerBytes = 24;      // into a value log
inline constexpr size_t kPagePointerBytes = 12;  // into value pages
inline constexpr size_t kStoredBytesMax = kValueBytesMax + kPointerBytes;
inline constexpr size_t kRecordHeaderBytesMax = 5;  // 2 for a key of 255, 3 for a value of 16,384
inline constexpr size_t kEncodedRecordBytesMax = kRecordHeaderBytesMax + kKeyBytesMax + kStoredBytesMax;

// Nearly always a size takes one byte; the hot paths ask once for both.
constexpr bool short_sizes(size_t key_bytes, size_t value_bytes) { return (key_bytes | value_bytes) < 0x80; }

constexpr size_t encoded_record_bytes(size_t key_bytes, size_t value_bytes) {
  const size_t header =
      short_sizes(key_bytes, value_bytes) ? 2 : varint_bytes(key_bytes) + varint_bytes(value_bytes);
  return header + key_bytes + value_bytes;
}

// Requires sizes within the limits and encoded_record_bytes of space. Returns the end of the written bytes.
inline char* encode_record(Bytes key, Bytes value, char* out) {
  assert(!key.empty() && key.size() <= kKeyBytesMax && value.size() <= kValueBytesMax);
  if (short_sizes(key.size(), value.size())) {
    *out++ = static_cast<char>(key.size());
    *out++ = static_cast<char>(value.size());
  } else {
    out = put_varint(out, key.size());
    out = put_varint(out, value.size());
  }
  copy_bytes(out, key.data(), key.size());
  copy_bytes(out + key.size(), value.data(), value.size());
  return out + key.size() + value.size();
}

// The usual sizes, for which most work on a record is straight-line code.
inline constexpr size_t kQuickKeyBytes = 8;
inline constexpr size_t kQuickValueBytesMax = 127;
inline bool has_quick_sizes(Bytes key, Bytes value) {
  return key.size() == kQuickKeyBytes && value.size() <= kQuickValueBytesMax;
}
// As encode_record, for such sizes. Returns the record's digest (hash.h).
inline uint64_t encode_quick_record(Bytes key, Bytes value, char* out) {
  out[0] = static_cast<char>(kQuickKeyBytes);
  out[1] = static_cast<char>(value.size());
  return copy_and_digest(out + 2, key.data(), value);
}

// A decoded record: views of the encoded bytes; the value directly follows the key.
struct RecordView {
  Bytes key;
  Bytes value;    // in a large record, the bytes in the value's place
  Bytes encoded;  // the whole record, header included; empty if it was stored without a header

  Bytes row() const { return {key.data(), key.size() + value.size()}; }
};

inline uint64_t record_digest(const RecordView& record) {
  return swale::record_digest(record.row(), record.key.size());
}

enum class RecordParse : uint8_t {
  kOk,
  kCutOff,     // the bytes end before the record does
  kMalformed,  // no record begins like this
};

// The hot path: no Status is made. `record` is set only on kOk.
inline RecordParse parse_record(Bytes bytes, RecordView* record) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  uint32_t sizes[2];
  if (end - at >= 2 && ((at[0] | at[1]) & 0x80) == 0) {  // the usual case: both sizes are below 128
    sizes[0] = static_cast<uint8_t>(at[0]);
    sizes[1] = static_cast<uint8_t>(at[1]);
    at += 2;
  } else {
    for (uint32_t& size : sizes) {
      const char* const next = get_varint32(at, end, &size);
      // A varint of a legal size has at most 3 bytes: if so many are left and it fails, the bytes are not cut
      // off.
      if (next == nullptr) return end - at < 3 ? RecordParse::kCutOff : RecordParse::kMalformed;
      at = next;
    }
    if (sizes[1] > kValueBytesMax) {
      sizes[1] -= uint32_t{kValueBytesMax};
      if (sizes[1] < kPointerBytes) return RecordParse::kMalformed;
    }
  }
  if (sizes[0] == 0 || sizes[0] > kKeyBytesMax || sizes[1] > kStoredBytesMax) return RecordParse::kMalformed;
  if (static_cast<size_t>(end - at) < size_t{sizes[0]} + sizes[1]) return RecordParse::kCutOff;
  record->key = {at, sizes[0]};
  record->value = {at + sizes[0], sizes[1]};
  record->encoded = {bytes.data(), static_cast<size_t>(at + sizes[0] + sizes[1] - bytes.data())};
  return RecordParse::kOk;
}

// Whether a record of a run, as parse_record returned it, is a large one.
inline bool is_large(const RecordView& record) {
  const size_t header_bytes = record.encoded.size() - record.key.size() - record.value.size();
  if (record.encoded.empty() || header_bytes < 4) return false;  // nearly always
  const char* const end = record.key.data();
  uint32_t sizes[2] = {};
  const char* const next = get_varint32(record.encoded.data(), end, &sizes[0]);
  return next != nullptr && get_varint32(next, end, &sizes[1]) != nullptr && sizes[1] > kValueBytesMax;
}

// Whether the record has a pointer and the value lies elsewhere.
inline bool points(ValueRule rule, const RecordView& record) {
  return rule == ValueRule::kPaged ? record.value.size() >= kPagePointerBytes : is_large(record);
}
constexpr size_t pointer_bytes(ValueRule rule) {
  return rule == ValueRule::kPaged ? kPagePointerBytes : kPointerBytes;
}

// What the record has of its value.
inline Bytes stored_fields(ValueRule rule, const RecordView& record) {
  return points(rule, record) ? record.value.substr(0, record.value.size() - pointer_bytes(rule))
                              : record.value;
}

// Requires kPointerBytes..kStoredBytesMax bytes in the value's place.
inline std::string encode_large_record(Bytes key, Bytes stored) {
  assert(stored.size() >= kPointerBytes && stored.size() <= kStoredBytesMax);
  std::string out;
  append_varint(&out, key.size());
  append_varint(&out, kValueBytesMax + stored.size());
  out.append(key);
  out.append(stored);
  return out;
}

}  // namespace swale::run
