// SealedDocument: a small file that people can read: a JSON object with its own checksum inside and a header
// that says which format and version it is. The manifests of all engines are sealed documents.
//
// Format: the last member is the seal, `"crc32c":"0123abcd"}` and a line feed: the CRC-32C of every byte
// before it. The first members are the header: "format" (a name), "version" (1 and up) and
// "incompatible_features" (an array of names; a reader that does not know one of them refuses the document).
// Numbers that may exceed 2^53 are strings of 16 hex digits.
// Threads: immutable.
// Errors: a message names the file, the object and the member in words, its line and offset, what was
// expected and what was found. kCorruption for damage; kUnsupported for a document of a newer Swale;
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/status.h"

namespace swale {

inline constexpr std::string_view kSealHead = "\"crc32c\":\"";
inline constexpr std::string_view kSealTail = "\"}\n";
inline constexpr size_t kSealBytes = kSealHead.size() + 8 + kSealTail.size();

// The seal to append to the covered bytes.
std::string seal_of(Bytes covered);
// Ends the open object with its seal and moves the whole text out.
std::string take_sealed(JsonWriter* json);
// Whether the text ends with the right seal.
bool is_sealed(Bytes text);

std::string hex16(uint64_t value);  // 16 digits

struct DocumentFormat {
  std::string_view name;
  uint64_t version = 1;                          // the newest one that this build reads; it writes this one
  std::span<const std::string_view> features{};  // incompatible features that this build knows
  uint64_t version_min = 1;                      // the oldest one that this build reads
};

// Opens the object and writes the header.
void begin_document(const DocumentFormat& format, std::span<const std::string_view> features,
                    JsonWriter* json);

// One object of a document, and the words that name it in messages.
class DocumentObject {
 public:
  // `where` names the file and the object in words: "DIR/swale.json: job 3".
  DocumentObject(Bytes text, JsonValue value, std::string where)
      : text_(text), value_(value), where_(std::move(where)) {}

  // Each fails if the member is absent, has another type or is out of bounds.
  Result<uint64_t> number(std::string_view name, uint64_t min, uint64_t max) const;
  Result<bool> flag(std::string_view name) const;
  Result<std::string> text(std::string_view name) const;
  Result<uint64_t> hex(std::string_view name) const;  // 16 lower-case digits
  Result<JsonValue> array(std::string_view name) const;

  JsonValue find(std::string_view name) const { return value_.find(name); }
  // A value inside this object that should be an object itself (its members are checked on access).
  DocumentObject below(JsonValue value, std::string_view words) const {
    return {text_, value, fmt::format("{}: {}", where_, words)};
  }

  const std::string& where() const { return where_; }
  // "line 7, offset 412": the place of the member, or of this object if it has no such member.
  std::string place(std::string_view name) const;
  // kCorruption: the member is not what was expected.
  Status problem(std::string_view name, std::string_view expected) const;
  // kUnsupported: "WHERE: what; read it with a newer swale".
  Status unsupported(std::string_view what) const;

 private:
  Bytes text_;  // the whole document
  JsonValue value_;
  std::string where_;
};

class SealedDocument {
 public:
  // Checks the seal. The text must outlive the document.
  static Result<SealedDocument> parse(Bytes text, std::string path);

  // Checks that the document has this format, and a version and features that this build knows.
  Status check_header(const DocumentFormat& format) const;
  // Whether the header names the feature. Call after check_header.
  bool has_feature(std::string_view feature) const;

  DocumentObject root() const { return {json_.text(), json_.root(), path_}; }

 private:
  SealedDocument(JsonTree json, std::string path) : json_(std::move(json)), path_(std::move(path)) {}

  JsonTree json_;
  std::string path_;
};

}  // namespace swale
