#include "meta/server/manifest.h"

#include "base/sealed_document.h"
#include "meta/server/partition.h"

namespace swale::meta {
namespace {
constexpr DocumentFormat kManifestFormat{.name = kFormatName, .version = 5, .version_min = 5};
constexpr size_t kManifestBytesMax = 32 * kMiB;       // 65,536 servers
constexpr uint64_t kOpeningsMax = uint64_t{1} << 62;  // counting on from more would begin at 0, a new store
}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  JsonWriter json;
  begin_document(kManifestFormat, {}, &json);
  json.line().member("servers", manifest.servers);
  json.line().member("range_bytes", hex16(manifest.range_bytes));
  json.line().member("store", hex16(manifest.store));
  json.line().member("generation", hex16(manifest.generation)).member("opened", hex16(manifest.opened));
  json.line().member("closed", manifest.closed);
  json.line().name("closings").array();
  for (const ClosedServer& each : manifest.closings)
    json.line().object().member("crc32c", hex16(each.crc)).end();
  json.end();
  json.line().name("places").array();
  for (const ServerPlace& each : manifest.places) {
    json.line().object().member("id", hex16(each.id)).member("host", each.host);
    json.member("path", each.path).member("rank", each.rank).end();
  }
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
  SWALE_ASSIGN_OR_RETURN(manifest.store, root.hex("store"));
  SWALE_ASSIGN_OR_RETURN(manifest.generation, root.hex("generation"));
  SWALE_ASSIGN_OR_RETURN(manifest.opened, root.hex("opened"));
  if (manifest.generation > kOpeningsMax) return root.problem("generation", "2^62 at most");
  if (manifest.opened > manifest.generation) return root.problem("opened", "the generation at most");
  SWALE_ASSIGN_OR_RETURN(manifest.closed, root.flag("closed"));
  SWALE_ASSIGN_OR_RETURN(const JsonValue closings, root.array("closings"));
  for (const JsonValue each : closings) {
    const DocumentObject object = root.below(each, fmt::format("server {}", manifest.closings.size()));
    ClosedServer& closed = manifest.closings.emplace_back();
    SWALE_ASSIGN_OR_RETURN(const uint64_t crc, object.hex("crc32c"));
    closed.crc = static_cast<uint32_t>(crc);
  }
  SWALE_ASSIGN_OR_RETURN(const JsonValue places, root.array("places"));
  for (const JsonValue each : places) {
    const DocumentObject object = root.below(each, fmt::format("place {}", manifest.places.size()));
    ServerPlace& place = manifest.places.emplace_back();
    SWALE_ASSIGN_OR_RETURN(place.id, object.hex("id"));
    SWALE_ASSIGN_OR_RETURN(place.host, object.text("host"));
    SWALE_ASSIGN_OR_RETURN(place.path, object.text("path"));
    SWALE_ASSIGN_OR_RETURN(const uint64_t rank, object.number("rank", 0, INT32_MAX));
    place.rank = static_cast<uint32_t>(rank);
  }
  if (manifest.places.size() != manifest.servers) return root.problem("places", "one of each server");
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
