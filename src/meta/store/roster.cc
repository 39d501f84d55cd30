#include "meta/store/roster.h"

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "base/sealed_document.h"
#include "meta/index/snapshot.h"
#include "meta/server/partition.h"

namespace swale::meta {
namespace {

constexpr DocumentFormat kServerFormat{.name = "swale-meta-server", .version = 1};
constexpr size_t kServerFileBytesMax = 64 * kKiB;

// Whether it is the name of a file that says whose server is here.
bool parse_server_file_name(const std::string& name, uint32_t* server) {
  unsigned number = 0;
  if (std::sscanf(name.c_str(), "server-%5u.json", &number) != 1 || name != server_file_name(number))
    return false;
  *server = number;
  return true;
}

std::string list_of(const std::vector<uint32_t>& servers) {
  constexpr size_t kNamedMax = 16;
  if (servers.empty()) return "no server of this store";
  std::string text = servers.size() == 1 ? "server" : "servers";
  for (size_t i = 0; i < std::min(servers.size(), kNamedMax); ++i)
    text += fmt::format("{} {}", i == 0 ? "" : ",", servers[i]);
  return servers.size() > kNamedMax ? text + fmt::format(" and {} more", servers.size() - kNamedMax) : text;
}

}  // namespace

std::string server_file_name(uint32_t server) { return fmt::format("server-{:05}.json", server); }

std::string encode_server_file(const ServerFile& file) {
  JsonWriter json;
  begin_document(kServerFormat, {}, &json);
  json.line().member("store", hex16(file.store));
  json.line().member("server", file.server).member("id", hex16(file.id));
  json.line();
  return take_sealed(&json);
}

Result<ServerFile> decode_server_file(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kServerFormat));
  const DocumentObject root = document.root();
  ServerFile file;
  SWALE_ASSIGN_OR_RETURN(file.store, root.hex("store"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t server, root.number("server", 0, kServersMax - 1));
  file.server = static_cast<uint32_t>(server);
  SWALE_ASSIGN_OR_RETURN(file.id, root.hex("id"));
  return file;
}

Result<bool> has_server(io::Device& device, const std::string& directory,
                        const std::vector<std::string>& names, const Manifest& manifest, uint32_t server) {
  assert(server < manifest.places.size());
  const std::string path = directory + "/" + server_file_name(server);
  const Result<std::string> text = io::read_file(device, path, kServerFileBytesMax);
  if (text.status().code() == Code::kNotFound) return false;
  SWALE_RETURN_IF_ERROR(text.status());
  SWALE_ASSIGN_OR_RETURN(const ServerFile file, decode_server_file(*text, path));
  if (file != ServerFile{manifest.store, manifest.places[server].id, server}) {
    return corruption(
        "{}: is of server {} (id {:016x}) of store {:016x}, expected {} of store {:016x}: were files of two "
        "stores mixed?",
        path, file.server, file.id, file.store, name_of_server(manifest, server), manifest.store);
  }
  if (manifest.closed) return true;  // the closing says which files there must be
  const std::string head = fmt::format("shard-{:06}.j", server);
  uint32_t newest = 0;
  for (const std::string& name : names) {
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    if (parse_shard_file_name(name, server, &job, &kind, &number) && kind == ShardFileKind::kManifest)
      newest = std::max(newest, job);
  }
  if (newest != 0) {
    SWALE_RETURN_IF_ERROR(check_first_log(device, directory, server, newest));
    return true;
  }
  return corruption(
      "{}/{}*.manifest: is missing, and {} is here: restore the files of {} from a copy; what is missing "
      "would read as holes",
      directory, head, server_file_name(server), name_of_server(manifest, server));
}

Result<std::vector<uint32_t>> servers_in(io::Device& device, const std::string& directory,
                                         const std::vector<std::string>& names, const Manifest& manifest) {
  std::vector<uint32_t> servers;
  for (const std::string& name : names) {
    uint32_t server = 0;
    if (!parse_server_file_name(name, &server) || server >= manifest.servers) continue;
    SWALE_ASSIGN_OR_RETURN(const bool here, has_server(device, directory, names, manifest, server));
    if (here) servers.push_back(server);
  }
  std::sort(servers.begin(), servers.end());
  return servers;
}

Status remove_server_files(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(directory));
  for (const std::string& name : names) {
    uint32_t server = 0;
    if (!parse_server_file_name(name, &server)) continue;
    SWALE_RETURN_IF_ERROR(device.remove(directory + "/" + name));
  }
  return {};
}

std::string name_of_server(const Manifest& manifest, uint32_t server) {
  assert(server < manifest.places.size());
  const ServerPlace& place = manifest.places[server];
  return fmt::format("server {} (id {:016x}, last at rank {} of host {}, in {})", server, place.id,
                     place.rank, place.host, place.path);
}

Status absent_server(const Manifest& manifest, uint32_t server, const std::string& looked_in,
                     const std::vector<uint32_t>& here) {
  return corruption(
      "{}/{}: is missing: {} of store {:016x} is not here; here is {}. Open the store with the nodes that "
      "have its servers, or restore the missing files from a copy: what is missing would read as holes",
      looked_in, server_file_name(server), name_of_server(manifest, server), manifest.store, list_of(here));
}

}  // namespace swale::meta
