#include "meta/server/manifest.h"

#include "base/sealed_document.h"
#include "meta/server/partition.h"

namespace swale::meta {
namespace {
constexpr DocumentFormat kManifestFormat{.name = kFormatName, .version = 2};
constexpr size_t kManifestBytesMax = 32 * kMiB;  // 65,536 servers
}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  JsonWriter json;
  begin_document(kManifestFormat, {}, &json);
  json.line().member("servers", manifest.servers);
  json.line().member("range_bytes", hex16(manifest.range_bytes));
  json.line().member("generation", hex16(manifest.generation)).member("closed", manifest.closed);
  json.line().name("closings").array();
  for (const ClosedServer& each : manifest.closings)
    json.line().object().member("crc32c", hex16(each.crc)).member("host", each.host).end();
  json.end();
  json.line();
  return take_sealed(&json);
}

Result<Manifest> decode_manifest(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kManifestFormat));
  const DocumentObject root = document.root();
  Manifest manifest;
  SWALE_ASSIGN_OR_RETURN(const uint64_t servers, root.number("servers", 1, kServersMax));
  manifest.servers = static_cast<uint32_t>(servers);
  SWALE_ASSIGN_OR_RETURN(manifest.range_bytes, root.hex("range_bytes"));
  if (!Partition::check(manifest.servers, manifest.range_bytes).ok())
    return root.problem("range_bytes", "4096 to 2^63");
  if (!root.find("generation").exists()) return manifest;  // of version 1
  SWALE_ASSIGN_OR_RETURN(manifest.generation, root.hex("generation"));
  SWALE_ASSIGN_OR_RETURN(manifest.closed, root.flag("closed"));
  SWALE_ASSIGN_OR_RETURN(const JsonValue closings, root.array("closings"));
  for (const JsonValue each : closings) {
    const DocumentObject object = root.below(each, fmt::format("server {}", manifest.closings.size()));
    ClosedServer& closed = manifest.closings.emplace_back();
    SWALE_ASSIGN_OR_RETURN(const uint64_t crc, object.hex("crc32c"));
    closed.crc = static_cast<uint32_t>(crc);
    SWALE_ASSIGN_OR_RETURN(closed.host, object.text("host"));
  }
  if (manifest.closings.size() != (manifest.closed ? manifest.servers : 0))
    return root.problem("closings", "one of each server of a closed store");
  return manifest;
}

Result<Manifest> read_manifest(io::Device& device, const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device, path, kManifestBytesMax));
  return decode_manifest(text, path);
}

}  // namespace swale::meta
