#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace swale {
namespace {

static_assert(kJsonDepthMax == 32, "the parser's message says so");
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the UTF-8 character at the front of the text; 0 if it is not valid (RFC 3629: no surrogates,
// nothing above U+10FFFF, no overlong form).
size_t utf8_bytes(Bytes text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto tails = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tails(1, 2) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool fits = (lead != 0xE0 || byte(1) >= 0xA0) && (lead != 0xED || byte(1) <= 0x9F);
    return fits && tails(1, 3) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool fits = (lead != 0xF0 || byte(1) >= 0x90) && (lead != 0xF4 || byte(1) <= 0x8F);
    return fits && tails(1, 4) ? 4 : 0;
  }
  return 0;
}

void append_utf8(uint32_t point, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  }
}

std::optional<uint32_t> parse_hex4(Bytes digits) {
  uint32_t value = 0;
  if (digits.size() < 4) return std::nullopt;
  const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + 4, value, 16);
  if (failure != std::errc() || stop != digits.data() + 4) return std::nullopt;
  return value;
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

struct Escape {
  size_t bytes = 0;  // with the backslash; 0: not a valid escape
  uint32_t point = 0;
};

// The escape that begins with the backslash at the front of the text.
Escape escape_of(Bytes text) {
  if (text.size() < 2) return {};
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const size_t letter = kLetters.find(text[1]);
  if (letter != std::string_view::npos) return {2, static_cast<uint32_t>(kMeanings[letter])};
  if (text[1] != 'u') return {};
  const std::optional<uint32_t> unit = parse_hex4(text.substr(2));
  if (!unit || is_low_surrogate(*unit)) return {};
  if (!is_high_surrogate(*unit)) return {6, *unit};
  const Bytes rest = text.substr(6);
  if (!rest.starts_with("\\u")) return {};
  const std::optional<uint32_t> low = parse_hex4(rest.substr(2));
  if (!low || !is_low_surrogate(*low)) return {};
  return {12, 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00)};
}

// The three below take a checked string literal with its quotation marks.
bool has_escapes(Bytes literal) { return literal.find('\\') != Bytes::npos; }
Bytes plain(Bytes literal) { return literal.substr(1, literal.size() - 2); }
std::string unescaped(Bytes literal) {
  Bytes rest = plain(literal);
  std::string out;
  while (!rest.empty()) {
    const size_t run = std::min(rest.find('\\'), rest.size());
    out += rest.substr(0, run);
    rest.remove_prefix(run);
    if (rest.empty()) break;
    const Escape escape = escape_of(rest);
    append_utf8(escape.point, &out);
    rest.remove_prefix(escape.bytes);
  }
  return out;
}
bool literal_equals(Bytes literal, std::string_view text) {
  return has_escapes(literal) ? unescaped(literal) == text : plain(literal) == text;
}

// The string literal that begins at the offset of a checked text, with its quotation marks.
Bytes literal_at(Bytes text, uint32_t offset) {
  size_t end = offset + 1;
  while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return text.substr(offset, end + 1 - offset);
}

template <class Number>
std::optional<Number> parse_number(Bytes text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

// Recursive descent. Each method leaves at_ after the text it has parsed, or where the text stops being JSON.
class JsonParser {
 public:
  explicit JsonParser(JsonTree* json) : text_(json->text_), nodes_(json->nodes_) {}

  bool parse() {
    if (!value(0, 0)) return false;
    skip_space();
    return at_ == text_.size() || fail("expected the end of the text");
  }
  size_t at() const { return at_; }
  const char* mistake() const { return mistake_; }

 private:
  using Kind = JsonTree::Kind;

  bool fail(const char* mistake) {
    mistake_ = mistake;
    return false;
  }
  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool value(uint32_t name, size_t depth) {
    skip_space();
    const size_t index = nodes_.size();
    nodes_.push_back({.name = name, .begin = static_cast<uint32_t>(at_)});
    if (!content(index, depth)) return false;
    nodes_[index].end = static_cast<uint32_t>(at_);
    return true;
  }

  bool content(size_t index, size_t depth) {
    if (next_is('{')) return container(index, depth + 1, Kind::kObject, '}');
    if (next_is('[')) return container(index, depth + 1, Kind::kArray, ']');
    if (next_is('"')) return (nodes_[index].kind = Kind::kString, string());
    if (word("null")) return (nodes_[index].kind = Kind::kNull, true);
    if (word("true")) return (nodes_[index].kind = Kind::kTrue, true);
    if (word("false")) return (nodes_[index].kind = Kind::kFalse, true);
    nodes_[index].kind = Kind::kNumber;
    return number();
  }

  bool container(size_t index, size_t depth, Kind kind, char close) {
    if (depth > kJsonDepthMax) return fail("nested more than 32 deep");
    nodes_[index].kind = kind;
    ++at_;
    skip_space();
    if (take(close)) return true;
    for (size_t last = 0;;) {
      uint32_t name = 0;
      if (kind == Kind::kObject && !member_name(&name)) return false;
      const size_t child = nodes_.size();
      if (!value(name, depth)) return false;
      if (last != 0) nodes_[last].next = static_cast<uint32_t>(child);
      last = child;
      ++nodes_[index].size;
      skip_space();
      if (take(close)) return true;
      if (!take(',')) return fail("expected a comma or the end of the array or object");
    }
  }

  bool member_name(uint32_t* name) {
    skip_space();
    *name = static_cast<uint32_t>(at_);
    if (!next_is('"')) return fail("expected the name of a member");
    if (!string()) return false;
    skip_space();
    return take(':') || fail("expected a colon");
  }

  bool string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      const Bytes rest = text_.substr(at_);
      if (static_cast<uint8_t>(rest[0]) < 0x20) return fail("a control character in a string");
      const size_t bytes = rest[0] == '\\' ? escape_of(rest).bytes : utf8_bytes(rest);
      if (bytes == 0) return fail(rest[0] == '\\' ? "an unknown escape" : "a string that is not UTF-8");
      at_ += bytes;
    }
    return take('"') || fail("a string without an end");
  }

  bool word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin || fail("expected a value");
  }
  bool number() {
    static_cast<void>(take('-'));
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    static_cast<void>(take('+') || take('-'));
    return digits();
  }

  const Bytes text_;
  std::vector<JsonTree::Node>& nodes_;
  size_t at_ = 0;
  const char* mistake_ = "";
};

Result<JsonTree> JsonTree::parse(Bytes text) {
  if (text.size() > kJsonBytesMax)
    return corruption("{} bytes, where at most {} are expected", text.size(), kJsonBytesMax);
  JsonTree json(text);
  JsonParser parser(&json);
  if (parser.parse()) return json;
  return corruption("{}: {}", json_place(text, parser.at()), parser.mistake());
}

bool JsonValue::is_object() const {
  return exists() && json_->nodes_[index_].kind == JsonTree::Kind::kObject;
}
bool JsonValue::is_array() const { return exists() && json_->nodes_[index_].kind == JsonTree::Kind::kArray; }

std::optional<uint64_t> JsonValue::unsigned_number() const {
  if (!exists() || json_->nodes_[index_].kind != JsonTree::Kind::kNumber) return std::nullopt;
  return parse_number<uint64_t>(source());
}

std::optional<int64_t> JsonValue::integer() const {
  if (!exists() || json_->nodes_[index_].kind != JsonTree::Kind::kNumber) return std::nullopt;
  return parse_number<int64_t>(source());
}

std::optional<double> JsonValue::number() const {
  if (!exists() || json_->nodes_[index_].kind != JsonTree::Kind::kNumber) return std::nullopt;
  return parse_number<double>(source());
}

std::optional<bool> JsonValue::boolean() const {
  if (!exists()) return std::nullopt;
  const JsonTree::Kind kind = json_->nodes_[index_].kind;
  if (kind != JsonTree::Kind::kTrue && kind != JsonTree::Kind::kFalse) return std::nullopt;
  return kind == JsonTree::Kind::kTrue;
}

std::optional<std::string> JsonValue::string() const {
  if (!exists() || json_->nodes_[index_].kind != JsonTree::Kind::kString) return std::nullopt;
  return unescaped(source());
}

bool JsonValue::equals(std::string_view text) const {
  return exists() && json_->nodes_[index_].kind == JsonTree::Kind::kString && literal_equals(source(), text);
}

JsonValue JsonValue::find(std::string_view name) const {
  JsonValue found;
  if (!is_object()) return found;
  for (const JsonValue member : *this)
    if (literal_equals(literal_at(json_->text_, json_->nodes_[member.index_].name), name)) found = member;
  return found;
}

size_t JsonValue::size() const { return exists() ? json_->nodes_[index_].size : 0; }
JsonValue::Iterator JsonValue::begin() const { return {json_, size() == 0 ? 0 : index_ + 1}; }
JsonValue::Iterator JsonValue::end() const { return {json_, 0}; }

JsonValue::Iterator& JsonValue::Iterator::operator++() {
  index_ = json_->nodes_[index_].next;
  return *this;
}

std::string JsonValue::name() const {
  const uint32_t name = exists() ? json_->nodes_[index_].name : 0;
  return name == 0 ? "" : unescaped(literal_at(json_->text_, name));
}

uint64_t JsonValue::offset() const {
  if (!exists()) return 0;
  const JsonTree::Node& node = json_->nodes_[index_];
  return node.name == 0 ? node.begin : node.name;
}

Bytes JsonValue::source() const {
  if (!exists()) return {};
  const JsonTree::Node& node = json_->nodes_[index_];
  return json_->text_.substr(node.begin, node.end - node.begin);
}

std::string json_place(Bytes text, uint64_t offset) {
  const Bytes before = text.substr(0, std::min<uint64_t>(offset, text.size()));
  return fmt::format("line {}, offset {}", 1 + std::count(before.begin(), before.end(), '\n'), before.size());
}

std::string json_number(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

void append_json_string(std::string_view text, std::string* out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  out->push_back('"');
  while (!text.empty()) {
    const size_t bytes = utf8_bytes(text);
    const size_t letter = kEscaped.find(text[0]);
    if (bytes == 0) {
      *out += kReplacement;
    } else if (letter != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kLetters[letter]);
    } else if (static_cast<uint8_t>(text[0]) < 0x20) {
      *out += fmt::format("\\u{:04x}", text[0]);
    } else {
      *out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  out->push_back('"');
}

}  // namespace swale
