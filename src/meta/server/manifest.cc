#include "meta/server/manifest.h"

#include "base/sealed_document.h"
#include "meta/server/partition.h"

namespace swale::meta {
namespace {
constexpr DocumentFormat kManifestFormat{.name = kFormatName, .version = 1};
constexpr size_t kManifestBytesMax = 64 * kKiB;
}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  JsonWriter json;
  begin_document(kManifestFormat, {}, &json);
  json.line().member("servers", manifest.servers);
  json.line().member("range_bytes", hex16(manifest.range_bytes));
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
  return manifest;
}

Result<Manifest> read_manifest(io::Device& device, const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device, path, kManifestBytesMax));
  return decode_manifest(text, path);
}

}  // namespace swale::meta
