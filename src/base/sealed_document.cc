#include "base/sealed_document.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/crc32c.h"

namespace swale {
namespace {

constexpr size_t kShownBytesMax = 60;  // of a wrong value, in messages

std::optional<uint64_t> parse_hex16(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value, 16);
  const bool lower = std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (text.size() != 16 || failure != std::errc() || stop != end || !lower) return std::nullopt;
  return value;
}

Status check_seal(Bytes text, const std::string& path) {
  if (is_sealed(text)) return {};
  if (text.size() < kSealBytes)
    return corruption("{}: has {} bytes, too few for its checksum; restore the file from a copy", path,
                      text.size());
  const Bytes covered = text.substr(0, text.size() - kSealBytes);
  if (!text.ends_with(kSealTail) || text.substr(covered.size(), kSealHead.size()) != kSealHead) {
    return corruption(
        "{}: does not end with its checksum at offset {}: it was cut off or edited; restore it from a copy",
        path, covered.size());
  }
  return corruption(
      "{}: offset {}: checksum {} is recorded, the bytes before it have {:08x}: it was damaged or edited; "
      "restore it from a copy",
      path, covered.size(), text.substr(covered.size() + kSealHead.size(), 8), crc32c(covered));
}

}  // namespace

std::string seal_of(Bytes covered) {
  return fmt::format("{}{:08x}{}", kSealHead, crc32c(covered), kSealTail);
}

std::string take_sealed(JsonWriter* json) {
  std::string text = json->take_separated();
  return text += seal_of(text);
}

bool is_sealed(Bytes text) {
  if (text.size() < kSealBytes) return false;
  const Bytes covered = text.substr(0, text.size() - kSealBytes);
  return text.substr(covered.size()) == seal_of(covered);
}

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

void begin_document(const DocumentFormat& format, std::span<const std::string_view> features,
                    JsonWriter* json) {
  json->object().member("format", format.name).member("version", format.version);
  json->name("incompatible_features").array();
  for (const std::string_view feature : features) json->value(feature);
  json->end();
}

std::string DocumentObject::place(std::string_view name) const {
  const JsonValue member = find(name);
  return json_place(text_, member.exists() ? member.offset() : value_.offset());
}

Status DocumentObject::problem(std::string_view name, std::string_view expected) const {
  const JsonValue member = find(name);
  return corruption("{}: member \"{}\" ({}): expected {}, found {}; restore the file from a copy", where_,
                    name, place(name), expected,
                    member.exists() ? member.source().substr(0, kShownBytesMax) : "nothing");
}

Status DocumentObject::unsupported(std::string_view what) const {
  return error(Code::kUnsupported, Scope::kFile, "{}: {}; read it with a newer swale", where_, what);
}

Result<uint64_t> DocumentObject::number(std::string_view name, uint64_t min, uint64_t max) const {
  const std::optional<uint64_t> value = find(name).unsigned_number();
  if (!value || *value < min || *value > max)
    return problem(name, fmt::format("an integer from {} to {}", min, max));
  return *value;
}

Result<bool> DocumentObject::flag(std::string_view name) const {
  const std::optional<bool> value = find(name).boolean();
  if (!value) return problem(name, "true or false");
  return *value;
}

Result<std::string> DocumentObject::text(std::string_view name) const {
  std::optional<std::string> value = find(name).string();
  if (!value) return problem(name, "a string");
  return *std::move(value);
}

Result<uint64_t> DocumentObject::hex(std::string_view name) const {
  const std::optional<uint64_t> value = parse_hex16(find(name).string().value_or(""));
  if (!value) return problem(name, "a string of 16 lower-case hex digits");
  return *value;
}

Result<JsonValue> DocumentObject::array(std::string_view name) const {
  const JsonValue value = find(name);
  if (!value.is_array()) return problem(name, "an array");
  return value;
}

Result<SealedDocument> SealedDocument::parse(Bytes text, std::string path) {
  SWALE_RETURN_IF_ERROR(check_seal(text, path));
  Result<JsonTree> json = JsonTree::parse(text);
  if (json.ok() && json->root().is_object()) return SealedDocument(*std::move(json), std::move(path));
  return corruption("{}: {}, though its checksum is right; restore the file from a copy", path,
                    json.ok() ? "is not a JSON object" : json.status().message());
}

Status SealedDocument::check_header(const DocumentFormat& format) const {
  const DocumentObject header = root();
  SWALE_ASSIGN_OR_RETURN(const std::string name, header.text("format"));
  // Its checksum is right, so nothing is damaged: the caller looks in the wrong place.
  if (name != format.name)
    return error(
        Code::kInvalidArgument, Scope::kFile,
        "{}: is a document of the format \"{}\", not \"{}\": `swale info` says what its directory is", path_,
        name, format.name);
  SWALE_ASSIGN_OR_RETURN(const uint64_t version, header.number("version", 1, UINT32_MAX));
  if (version > format.version) {
    return header.unsupported(
        fmt::format("is of format version {}, this build knows up to {}", version, format.version));
  }
  if (version < format.version_min) {
    return error(
        Code::kUnsupported, Scope::kFile,
        "{}: is of format version {}, this build reads {} and later ones: read it with the swale that "
        "wrote it",
        path_, version, format.version_min);
  }
  SWALE_ASSIGN_OR_RETURN(const JsonValue features, header.array("incompatible_features"));
  for (const JsonValue feature : features) {
    const bool known = std::any_of(format.features.begin(), format.features.end(),
                                   [feature](std::string_view ours) { return feature.equals(ours); });
    if (!known)
      return header.unsupported(
          fmt::format("uses features that this build lacks: {}", features.source().substr(0, 200)));
  }
  return {};
}

bool SealedDocument::has_feature(std::string_view feature) const {
  const JsonValue features = json_.root().find("incompatible_features");
  return std::any_of(features.begin(), features.end(), [&](JsonValue one) { return one.equals(feature); });
}

}  // namespace swale
