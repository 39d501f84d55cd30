#include "imd/format/attributes.h"

#include <algorithm>

#include "base/json.h"
#include "base/sealed_document.h"

namespace swale::imd {
namespace {

constexpr std::string_view kDirectoryName = "directory";
constexpr std::string_view kEpochName = "attributes";

void append_member(std::string_view name, const std::optional<std::string>& document, std::string* line) {
  if (document) *line += fmt::format("\"{}\":{},", name, *document);
}

Result<std::optional<std::string>> document_of(const DocumentObject& root, std::string_view name) {
  const JsonValue value = root.find(name);
  if (!value.exists()) return std::optional<std::string>();
  if (!value.is_object()) return root.problem(name, "an object");
  // A member's source begins with the value, not with its name.
  return std::optional(std::string(value.source()));
}

}  // namespace

Result<std::string> check_attributes(Bytes json) {
  if (json.size() > kAttributesBytesMax) {
    return invalid_argument("attributes of {} bytes: a document has at most {}; keep tables in records",
                            json.size(), kAttributesBytesMax);
  }
  const Result<JsonTree> tree = JsonTree::parse(json);
  if (!tree.ok()) return invalid_argument("attributes that are no JSON: {}", tree.status().message());
  if (!tree->root().is_object())
    return invalid_argument("attributes that are no JSON object: expected {{\"name\": value, ...}}");
  if (tree->root().size() == 0) return std::string(kNoAttributes);
  std::string line(tree->root().source());
  // Raw control characters stand between tokens alone.
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  // In its line it stands one deeper.
  const std::string nested = fmt::format("[{}]", line);
  if (const Result<JsonTree> kept = JsonTree::parse(nested); !kept.ok())
    return invalid_argument("attributes nested too deep: {}", kept.status().message());
  return line;
}

std::string encode_attributes_line(uint64_t epoch_id, EpochNumber epoch, const Attributes& attributes) {
  std::string line = fmt::format("{{\"epoch_id\":\"{}\",\"epoch\":{},", hex16(epoch_id), epoch.value());
  append_member(kDirectoryName, attributes.directory, &line);
  append_member(kEpochName, attributes.epoch, &line);
  return line += seal_of(line);
}

Result<AttributesLine> decode_attributes_line(Bytes line, const std::string& path, uint64_t offset) {
  const std::string where = fmt::format("{}: offset {}: attributes", path, offset);
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(line, where));
  const DocumentObject root = document.root();
  AttributesLine decoded;
  SWALE_ASSIGN_OR_RETURN(decoded.epoch_id, root.hex("epoch_id"));
  SWALE_ASSIGN_OR_RETURN(decoded.attributes.directory, document_of(root, kDirectoryName));
  SWALE_ASSIGN_OR_RETURN(decoded.attributes.epoch, document_of(root, kEpochName));
  return decoded;
}

Result<Attributes> read_attributes(io::Device& device, const std::string& directory,
                                   const EpochEntry& epoch) {
  const JobFilePlace& place = epoch.attributes;
  if (place.bytes == 0) return Attributes();
  const std::string path = attributes_path(directory, place.job);
  if (place.bytes > kAttributesLineBytesMax) {
    return corruption(
        "{}: offset {}: {} bytes are recorded for the attributes of epoch {}, at most {} expected", path,
        place.offset, place.bytes, epoch.epoch, kAttributesLineBytesMax);
  }
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file, device.open(path, io::OpenMode::kRead));
  std::string line(place.bytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file, place.offset, line));
  SWALE_ASSIGN_OR_RETURN(AttributesLine decoded, decode_attributes_line(line, path, place.offset));
  if (decoded.epoch_id != epoch.epoch_id) {
    return corruption("{}: offset {}: has the attributes of epoch_id {:016x}, expected {:016x} of epoch {}",
                      path, place.offset, decoded.epoch_id, epoch.epoch_id, epoch.epoch);
  }
  return std::move(decoded.attributes);
}

Result<std::string> read_directory_attributes(io::Device& device, const std::string& directory,
                                              const Manifest& manifest, EpochNumber epoch) {
  const std::optional<EpochNumber> by = manifest.epochs[epoch].described_by;
  if (!by) return std::string(kNoAttributes);
  SWALE_ASSIGN_OR_RETURN(Attributes found, read_attributes(device, directory, manifest.epochs[*by]));
  if (found.directory) return std::move(*found.directory);
  return corruption(
      "{}: epoch {} says that epoch {} has the directory's attributes, which it has not; run "
      "`swale repair`",
      epoch_log_path(directory, manifest.generation), epoch, *by);
}

}  // namespace swale::imd
