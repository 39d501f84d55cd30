// JsonTree: a parsed JSON text (RFC 8259), and JsonValue, a handle on one of its values. Swale's own small
// parser, for four reasons: a value knows its offset in the text, so that messages can name it; nesting is
// limited; nothing is copied, so that a text of n values costs one array of n nodes; and the destructor
// allocates nothing (that of nlohmann::json does, and ends the process where no memory is left).
//
//   Result<JsonTree> json = JsonTree::parse(text);
//   const std::optional<uint64_t> ranks = json->root().find("ranks").unsigned_number();
//
// Format: UTF-8 (checked), at most kJsonBytesMax bytes, nested at most kJsonDepthMax deep. If an object has
// two members with the same name, the last one counts.
// Threads: immutable. Ownership: the text is the caller's and outlives JsonTree; handles are valid until
// their JsonTree is moved or destroyed.
// Errors: kCorruption that begins with the place where the text stops being JSON; std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale {

// This library's own documents are 5 deep. The parser recurses once per level.
inline constexpr size_t kJsonDepthMax = 32;
inline constexpr size_t kJsonBytesMax = kGiB;

// "line 7, offset 412"; the line is counted from 1.
std::string json_place(Bytes text, uint64_t offset);

// A double as JSON text: the shortest that reads back as the same number, with ".0" if it is whole.
std::string json_number(double number);

// Appends the text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string_view text, std::string* out);

class JsonTree;

class JsonValue {
 public:
  class Iterator;

  // An absent value, for example from find() of an absent member. Every query returns "no" or nothing.
  JsonValue() = default;

  bool exists() const { return json_ != nullptr; }
  bool is_object() const;
  bool is_array() const;

  // Nothing if the value is of another type or does not fit.
  std::optional<uint64_t> unsigned_number() const;  // an integer without a sign
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;  // any number that is finite
  std::optional<bool> boolean() const;
  std::optional<std::string> string() const;  // unescaped
  bool equals(std::string_view text) const;   // is this string; allocates only if the value has escapes

  JsonValue find(std::string_view name) const;  // a member of an object
  size_t size() const;                          // members or elements; 0 for other values
  Iterator begin() const;                       // of members or elements, in the order of the text
  Iterator end() const;

  std::string name() const;  // of a member, unescaped; "" for others
  // In the text: where a member's name begins, or the value if it is no member.
  uint64_t offset() const;
  Bytes source() const;  // the value as it stands in the text

 private:
  friend class JsonTree;
  JsonValue(const JsonTree* json, uint32_t index) : json_(json), index_(index) {}

  const JsonTree* json_ = nullptr;
  uint32_t index_ = 0;
};

class JsonTree {
 public:
  static Result<JsonTree> parse(Bytes text);

  JsonValue root() const { return {this, 0}; }
  Bytes text() const { return text_; }

 private:
  friend class JsonValue;
  friend class JsonParser;
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  // The children of a container follow it; `next` is a child's next sibling, past the child's own children.
  struct Node {
    Kind kind = Kind::kNull;
    uint32_t name = 0;  // offset of the name's quotation mark; 0: no member
    uint32_t begin = 0;
    uint32_t end = 0;   // past the value's last byte
    uint32_t next = 0;  // index of the next sibling; 0: the last one
    uint32_t size = 0;  // children
  };

  explicit JsonTree(Bytes text) : text_(text) {}

  Bytes text_;
  std::vector<Node> nodes_;
};

class JsonValue::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = JsonValue;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = JsonValue;

  Iterator(const JsonTree* json, uint32_t index) : json_(json), index_(index) {}
  JsonValue operator*() const { return {json_, index_}; }
  Iterator& operator++();
  bool operator==(const Iterator& other) const { return index_ == other.index_; }

 private:
  const JsonTree* json_;
  uint32_t index_;  // 0: past the end
};

}  // namespace swale
