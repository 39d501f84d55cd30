// Schema: which numbers a value consists of, and which of these numbers are indexed by their extrema.
//
// Fields lie in a value in the order of the schema, little-endian, without gaps. A field called "_" is
// padding: no name means it. A value is as long as its fields are, so that a compiler's padding is not read
// as numbers; unless the schema says any_length: then bytes of a value after its last field are ignored, and
// a value that ends before a field lacks it. Text form, as in the options imd.schema and imd.extrema: fields
// "name:type[xCOUNT][:unit]" separated by ';', and names of fields or elements ("v[1]") separated by ';'.
// Types: f4 f8 i1 i2 i4 i8 u1 u2 u4 u8. "_:N" is a field of N bytes of padding (u1xN); "_:*", only as the
// last one, is any_length.
//
// Order keys: every number as a 64-bit unsigned integer, in the order of the numbers, exactly
// (design/field-extrema.md).
// Threads: values. Errors: kInvalidArgument that names the field and what is possible.
// Limits: kSchemaFieldsMax fields, kIndexedFieldsMax indexed ones, values of 16,384 bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::run {

inline constexpr size_t kSchemaFieldsMax = 1024;
inline constexpr size_t kIndexedFieldsMax = 8;

// DO NOT CHANGE THESE VALUES: they are on disk.
enum class FieldType : uint8_t {
  kF4 = 1,
  kF8 = 2,
  kI1 = 3,
  kI2 = 4,
  kI4 = 5,
  kI8 = 6,
  kU1 = 7,
  kU2 = 8,
  kU4 = 9,
  kU8 = 10,
};

bool is_field_type(uint8_t value);
std::optional<FieldType> field_type(std::string_view name);
uint32_t type_bytes(FieldType type);
std::string_view type_name(FieldType type);  // "f8"

// The type of keys. It only tells how people write keys and how tools show them; records are not checked
// against it.
enum class KeyType : uint8_t {
  kBytes,
  kText,
  kU64,  // 8 bytes, a little-endian number without a sign
  kI64,  // the same with a sign
};
std::optional<KeyType> key_type_named(std::string_view name);  // "bytes", "text", "u64", "i64"
// The name; "as_made" for none.
std::string_view key_text(std::optional<KeyType> type);

struct Field {
  std::string name;
  FieldType type = FieldType::kF8;
  uint32_t count = 1;
  std::string unit;
  uint32_t offset = 0;  // in the value

  bool operator==(const Field&) const = default;
};

// One number of a value.
struct FieldPlace {
  std::string name;  // "energy", "v[1]"
  FieldType type = FieldType::kF8;
  uint32_t offset = 0;

  uint32_t end() const { return offset + type_bytes(type); }
  bool operator==(const FieldPlace&) const = default;
};

struct Schema {
  std::vector<Field> fields;
  std::vector<FieldPlace> indexed;
  std::optional<KeyType> key = {};  // none: not declared
  bool any_length = false;          // values may be shorter or longer than their fields

  // Both may be empty; `indexed` may not be without `fields`.
  static Result<Schema> parse(std::string_view fields, std::string_view indexed);
  // Appends a field after the others.
  Status add(Field field);
  Status index(std::string_view name);

  bool empty() const { return fields.empty(); }  // of values nothing is told
  // So many bytes at the front of a value have all indexed fields.
  uint32_t indexed_bytes() const {
    uint32_t bytes = 0;
    for (const FieldPlace& place : indexed) bytes = std::max(bytes, place.end());
    return bytes;
  }
  // So many have all fields.
  uint32_t value_bytes() const {
    return fields.empty() ? 0 : fields.back().offset + fields.back().count * type_bytes(fields.back().type);
  }
  // The length of every value; none: values have any length.
  std::optional<uint32_t> exact_bytes() const {
    return empty() || any_length ? std::nullopt : std::optional(value_bytes());
  }
  // kInvalidArgument unless a value may have this length: says both lengths, and how padding is written.
  Status check_length(uint64_t bytes) const {
    return empty() || any_length || bytes == value_bytes() ? Status() : wrong_length(bytes);
  }
  // A field with count 1 by its name, any element as "name[i]". kInvalidArgument names those there are.
  Result<FieldPlace> find(std::string_view name) const;
  std::string fields_text() const;
  std::string indexed_text() const;

  bool operator==(const Schema&) const = default;

 private:
  Status wrong_length(uint64_t bytes) const;
};

using OrderKey = uint64_t;

struct FieldValue {
  enum class Kind : uint8_t { kNumber, kNan, kAbsent };
  Kind kind = Kind::kAbsent;
  OrderKey key = 0;
};
FieldValue read_field(const FieldPlace& place, Bytes value);

// The order key of a stored number. Only integer arithmetic: an application may switch denormals off, and the
// threads that it starts inherit that. Requires a number that is not a NaN.
inline OrderKey double_key(uint64_t bits) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (bits == kSign) bits = 0;  // -0 is 0
  return (bits & kSign) != 0 ? ~bits : bits ^ kSign;
}
inline OrderKey float_key(uint32_t bits) {
  constexpr uint32_t kSign = uint32_t{1} << 31;
  if (bits == kSign) bits = 0;
  return uint64_t{(bits & kSign) != 0 ? ~bits : bits ^ kSign} << 32;
}
inline OrderKey signed_key(int64_t number) { return static_cast<uint64_t>(number) ^ (uint64_t{1} << 63); }
inline OrderKey unsigned_key(uint64_t number) { return number; }
inline bool is_nan_double(uint64_t bits) { return (bits & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52; }
inline bool is_nan_float(uint32_t bits) { return (bits & ~(uint32_t{1} << 31)) > uint32_t{0xff} << 23; }

// The double nearest to the number that a key stands for.
double number_of(FieldType type, OrderKey key);
// Text that reads back as the same number.
std::string text_of(FieldType type, OrderKey key);

}  // namespace swale::run
