#include "run/schema.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>

#include "base/coding.h"
#include "run/record.h"

namespace swale::run {
namespace {

constexpr char kPaddingName[] = "_";
constexpr char kAnyLength[] = "_:*";
constexpr uint64_t kSignBit = uint64_t{1} << 63;
constexpr uint32_t kFloatSignBit = uint32_t{1} << 31;
constexpr std::string_view kTypeNames[] = {"f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"};

std::optional<uint32_t> parse_number(std::string_view text) {
  uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), letter);
}

// Units: any printable characters except the separators.
bool is_unit(std::string_view text) {
  const auto allowed = [](char c) {
    return c > ' ' && c < 0x7f && c != ';' && c != ',' && c != '"' && c != '\\';
  };
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

Result<Field> parse_field(std::string_view text) {
  const auto problem = [&](std::string_view what) {
    return invalid_argument(
        "schema: field \"{}\": {}; expected name:type[xCOUNT][:unit] with a type of {}, or _:N for N bytes "
        "of "
        "padding, or _:* at the end if values have any length",
        text, what, fmt::join(kTypeNames, " "));
  };
  const size_t name_end = text.find(':');
  if (name_end == std::string_view::npos) return problem("it has no type");
  Field field;
  field.name = text.substr(0, name_end);
  std::string_view type = text.substr(name_end + 1);
  if (const auto padding = parse_number(type); padding && field.name == kPaddingName) {
    field.type = FieldType::kU1;
    field.count = *padding;
    return field;
  }
  if (const size_t type_end = type.find(':'); type_end != std::string_view::npos) {
    field.unit = type.substr(type_end + 1);
    type = type.substr(0, type_end);
  }
  if (const size_t times = type.find('x'); times != std::string_view::npos) {
    const std::optional<uint32_t> count = parse_number(type.substr(times + 1));
    if (!count) return problem("its count is not a number");
    field.count = *count;
    type = type.substr(0, times);
  }
  const std::optional<FieldType> known = field_type(type);
  if (!known) return problem(fmt::format("unknown type \"{}\"", type));
  field.type = *known;
  return field;
}

template <class T>
FieldValue integer_value(const char* at) {
  const T number = get_fixed<T>(at);
  if constexpr (std::is_signed_v<T>) {
    return {FieldValue::Kind::kNumber, signed_key(number)};
  } else {
    return {FieldValue::Kind::kNumber, unsigned_key(number)};
  }
}

double double_of(OrderKey key) {
  return std::bit_cast<double>((key & kSignBit) != 0 ? key ^ kSignBit : ~key);
}

float float_of(OrderKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ordered & kFloatSignBit) != 0 ? ordered ^ kFloatSignBit : ~ordered);
}

}  // namespace

bool is_field_type(uint8_t value) { return value >= 1 && value <= std::size(kTypeNames); }

std::optional<FieldType> field_type(std::string_view name) {
  const auto* const found = std::find(std::begin(kTypeNames), std::end(kTypeNames), name);
  if (found == std::end(kTypeNames)) return std::nullopt;
  return static_cast<FieldType>(1 + (found - std::begin(kTypeNames)));
}

std::optional<KeyType> key_type_named(std::string_view name) {
  for (const KeyType type : {KeyType::kBytes, KeyType::kText, KeyType::kU64, KeyType::kI64}) {
    if (key_text(type) == name) return type;
  }
  return std::nullopt;
}

std::string_view key_text(std::optional<KeyType> type) {
  if (!type) return "as_made";
  switch (*type) {
    case KeyType::kBytes:
      return "bytes";
    case KeyType::kText:
      return "text";
    case KeyType::kU64:
      return "u64";
    case KeyType::kI64:
      break;
  }
  return "i64";
}

uint32_t type_bytes(FieldType type) { return static_cast<uint32_t>(type_name(type)[1] - '0'); }

std::string_view type_name(FieldType type) { return kTypeNames[static_cast<size_t>(type) - 1]; }

Status Schema::add(Field field) {
  if (any_length)
    return invalid_argument("schema: \"{}\" must be the last field, found \"{}\" after it", kAnyLength,
                            field.name);
  const uint64_t offset =
      fields.empty() ? 0
                     : fields.back().offset + uint64_t{fields.back().count} * type_bytes(fields.back().type);
  if (!is_name(field.name) || !is_unit(field.unit)) {
    return invalid_argument(
        "schema: field \"{}\" with unit \"{}\": names have 1 to 64 letters, digits, '_', '.' and '-', units "
        "at most 64 printable characters other than , ; \" and \\",
        field.name, field.unit);
  }
  const bool taken =
      field.name != kPaddingName &&
      std::any_of(fields.begin(), fields.end(), [&](const Field& other) { return other.name == field.name; });
  if (taken) return invalid_argument("schema: two fields are called \"{}\"", field.name);
  if (field.count == 0 || offset + uint64_t{field.count} * type_bytes(field.type) > kValueBytesMax ||
      fields.size() == kSchemaFieldsMax) {
    return invalid_argument(
        "schema: field \"{}\" with {} elements: at most {} fields, at least one element each, {} bytes in "
        "all",
        field.name, field.count, kSchemaFieldsMax, kValueBytesMax);
  }
  field.offset = static_cast<uint32_t>(offset);
  fields.push_back(std::move(field));
  return {};
}

Status Schema::index(std::string_view name) {
  SWALE_ASSIGN_OR_RETURN(FieldPlace place, find(name));
  if (std::find(indexed.begin(), indexed.end(), place) != indexed.end()) {
    return invalid_argument("schema: \"{}\" is to be indexed twice", name);
  }
  if (indexed.size() == kIndexedFieldsMax) {
    return invalid_argument("schema: more than {} indexed fields", kIndexedFieldsMax);
  }
  indexed.push_back(std::move(place));
  return {};
}

Result<Schema> Schema::parse(std::string_view fields_text, std::string_view indexed_text) {
  Schema schema;
  for (const std::string_view text : split(fields_text, ';')) {
    if (text == kAnyLength && !schema.empty() && !schema.any_length) {
      schema.any_length = true;
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(Field field, parse_field(text));
    SWALE_RETURN_IF_ERROR(schema.add(std::move(field)));
  }
  for (const std::string_view name : split(indexed_text, ';')) SWALE_RETURN_IF_ERROR(schema.index(name));
  return schema;
}

Result<FieldPlace> Schema::find(std::string_view name) const {
  std::string_view base = name;
  std::optional<uint32_t> element;
  if (const size_t bracket = name.find('['); bracket != std::string_view::npos && name.ends_with(']')) {
    base = name.substr(0, bracket);
    element = parse_number(name.substr(bracket + 1, name.size() - bracket - 2));
    if (!element) base = {};
  }
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) {
    return field.name == base && base != kPaddingName;
  });
  if (found == fields.end() || (element ? *element >= found->count : found->count != 1)) {
    std::vector<std::string> known;
    for (const Field& field : fields) {
      if (field.name == kPaddingName) continue;
      known.push_back(field.count == 1 ? field.name : fmt::format("{}[0..{}]", field.name, field.count - 1));
    }
    return invalid_argument("no field \"{}\"; the schema has {}", name,
                            known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
  // An element has only one name: "x[0]" of a field with count 1 means "x".
  return FieldPlace{found->count == 1 ? found->name : std::string(name), found->type,
                    found->offset + element.value_or(0) * type_bytes(found->type)};
}

Status Schema::wrong_length(uint64_t bytes) const {
  const std::string text = fields_text();
  const std::string longer =
      bytes > value_bytes() && bytes - value_bytes() <= kValueBytesMax
          ? fmt::format(
                "; {} more may be padding that a compiler put between or after fields of a struct: write it "
                "where it lies, as \"_:N\" for N bytes",
                bytes - value_bytes())
          : "";
  return invalid_argument(
      "a value of {} bytes, but the schema \"{}\" describes {}{}; if values have any length, end the schema "
      "with "
      "\";{}\"",
      bytes, text, value_bytes(), longer, kAnyLength);
}

std::string Schema::fields_text() const {
  std::string text;
  for (const Field& field : fields) {
    text += fmt::format("{}{}:", text.empty() ? "" : ";", field.name);
    if (field.name == kPaddingName && field.type == FieldType::kU1 && field.unit.empty()) {
      text += fmt::format("{}", field.count);
      continue;
    }
    text += type_name(field.type);
    if (field.count != 1) text += fmt::format("x{}", field.count);
    if (!field.unit.empty()) text += ":" + field.unit;
  }
  return any_length ? text + ";" + kAnyLength : text;
}

std::string Schema::indexed_text() const {
  std::string text;
  for (const FieldPlace& place : indexed) text += (text.empty() ? "" : ";") + place.name;
  return text;
}

FieldValue read_field(const FieldPlace& place, Bytes value) {
  if (value.size() < place.end()) return {};
  const char* const at = value.data() + place.offset;
  switch (place.type) {
    case FieldType::kF4:
      if (is_nan_float(get_u32(at))) return {FieldValue::Kind::kNan, 0};
      return {FieldValue::Kind::kNumber, float_key(get_u32(at))};
    case FieldType::kF8:
      if (is_nan_double(get_u64(at))) return {FieldValue::Kind::kNan, 0};
      return {FieldValue::Kind::kNumber, double_key(get_u64(at))};
    case FieldType::kI1:
      return integer_value<int8_t>(at);
    case FieldType::kI2:
      return integer_value<int16_t>(at);
    case FieldType::kI4:
      return integer_value<int32_t>(at);
    case FieldType::kI8:
      return integer_value<int64_t>(at);
    case FieldType::kU1:
      return integer_value<uint8_t>(at);
    case FieldType::kU2:
      return integer_value<uint16_t>(at);
    case FieldType::kU4:
      return integer_value<uint32_t>(at);
    case FieldType::kU8:
      return integer_value<uint64_t>(at);
  }
  return {};
}

double number_of(FieldType type, OrderKey key) {
  const char kind = type_name(type)[0];
  if (type == FieldType::kF4) return double{float_of(key)};
  if (kind == 'f') return double_of(key);
  if (kind == 'i') return static_cast<double>(static_cast<int64_t>(key ^ kSignBit));
  return static_cast<double>(key);
}

std::string text_of(FieldType type, OrderKey key) {
  const char kind = type_name(type)[0];
  if (type == FieldType::kF4) return fmt::format("{}", float_of(key));
  if (kind == 'f') return fmt::format("{}", double_of(key));
  if (kind == 'i') return fmt::format("{}", static_cast<int64_t>(key ^ kSignBit));
  return fmt::format("{}", key);
}

}  // namespace swale::run
