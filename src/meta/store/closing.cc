#include "meta/store/closing.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "meta/index/snapshot.h"
#include "meta/index/sorted_file.h"
#include "meta/server/partition.h"
#include "meta/store/roster.h"

namespace swale::meta {
namespace {

constexpr DocumentFormat kClosingFormat{.name = "swale-meta-closing", .version = 1};
constexpr size_t kClosingBytesMax = 64 * kMiB;
constexpr std::string_view kRemedy =
    "restore the store's directory as it was at that close from a copy; what is missing would read as holes";

// A file of a server, by its name; job 0: it is none, or a draft.
struct Part {
  uint32_t job = 0;
  ShardFileKind kind{};
};

Part part_of(const std::string& name, uint32_t server) {
  uint32_t of_job = 0, number = 0;
  ShardFileKind kind{};
  if (!parse_shard_file_name(name, server, &of_job, &kind, &number)) return {};
  return {of_job, kind};
}

// Length and checksum of a file, or of its first bytes_max bytes, as a closing has them.
Result<ClosingFile> measure(io::Device& device, const std::string& directory, const std::string& name,
                            bool sorted, uint64_t bytes_max) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(directory + "/" + name, io::OpenMode::kRead));
  ClosingFile found{name, 0, crc32c({})};
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  found.bytes = std::min(size, bytes_max);
  std::string piece(static_cast<size_t>(std::min<uint64_t>(found.bytes, kMiB)), '\0');
  uint64_t at = sorted ? found.bytes - std::min<uint64_t>(found.bytes, kSortedTrailerBytes) : 0;
  while (at < found.bytes) {
    const MutableBytes some(piece.data(),
                            static_cast<size_t>(std::min<uint64_t>(piece.size(), found.bytes - at)));
    SWALE_RETURN_IF_ERROR(io::read_exactly(*file, at, some));
    found.crc = crc32c_extend(found.crc, Bytes(some.data(), some.size()));
    at += some.size();
  }
  return found;
}

Status compare(const std::string& path, const ClosingFile& closed, const ClosingFile& found,
               const Closing& closing) {
  if (found.bytes != closed.bytes) {
    return corruption("{}: offset {}: the store was closed (generation {}) with {} bytes in it, found {}: {}",
                      path, std::min(found.bytes, closed.bytes), closing.generation, closed.bytes,
                      found.bytes, kRemedy);
  }
  if (found.crc != closed.crc) {
    return corruption(
        "{}: of its {} bytes some are others than when the store was closed (generation {}): "
        "checksum {:08x}, found {:08x}: {}",
        path, closed.bytes, closing.generation, closed.crc, found.crc, kRemedy);
  }
  return {};
}

Status older_manifest(const std::string& directory, const Manifest& manifest, const Closing& closing) {
  return corruption(
      "{}/{}: is of generation {}, and server {} was closed in generation {}: it is an older copy: {}",
      directory, kManifestName, manifest.opened, closing.server, closing.generation, kRemedy);
}

Result<Closing> read_closing(io::Device& device, const std::string& directory, const Manifest& manifest,
                             uint32_t server) {
  const ClosedServer& closed = manifest.closings[server];
  const std::string path = directory + "/" + closing_name(server);
  const Result<std::string> text = io::read_file(device, path, kClosingBytesMax);
  if (text.status().code() == Code::kNotFound) {
    return corruption("{}: is missing: it was written at a close (generation {}) by {}: {}", path,
                      manifest.opened, name_of_server(manifest, server), kRemedy);
  }
  SWALE_RETURN_IF_ERROR(text.status());
  Result<Closing> closing = decode_closing(*text, path);
  if (closing.ok() && closing->generation > manifest.opened)
    return older_manifest(directory, manifest, *closing);
  if (crc32c(*text) != closed.crc) {
    return corruption(
        "{}: is not the one of the last close (generation {}; checksum {:08x}, found {:08x}): an older copy, "
        "or damage: {}",
        path, manifest.opened, closed.crc, crc32c(*text), kRemedy);
  }
  return closing;
}

}  // namespace

std::string closing_name(uint32_t server) { return fmt::format("closing-{:05}.json", server); }

std::string encode_closing(const Closing& closing) {
  JsonWriter json;
  begin_document(kClosingFormat, {}, &json);
  json.line().member("server", closing.server).member("job", closing.job);
  json.line().member("generation", hex16(closing.generation));
  json.line().member("files", hex16(closing.files)).member("extents", hex16(closing.extents));
  json.line().name("parts").array();
  for (const ClosingFile& each : closing.parts) {
    json.line().object();
    json.member("name", each.name).member("bytes", hex16(each.bytes)).member("crc32c", hex16(each.crc));
    json.end();
  }
  json.end();
  json.line();
  return take_sealed(&json);
}

Result<Closing> decode_closing(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kClosingFormat));
  const DocumentObject root = document.root();
  Closing closing;
  SWALE_ASSIGN_OR_RETURN(const uint64_t server, root.number("server", 0, kServersMax - 1));
  closing.server = static_cast<uint32_t>(server);
  SWALE_ASSIGN_OR_RETURN(const uint64_t job, root.number("job", 1, ~uint32_t{0}));
  closing.job = static_cast<uint32_t>(job);
  SWALE_ASSIGN_OR_RETURN(closing.generation, root.hex("generation"));
  SWALE_ASSIGN_OR_RETURN(closing.files, root.hex("files"));
  SWALE_ASSIGN_OR_RETURN(closing.extents, root.hex("extents"));
  SWALE_ASSIGN_OR_RETURN(const JsonValue parts, root.array("parts"));
  for (const JsonValue each : parts) {
    const DocumentObject object = root.below(each, fmt::format("file {}", closing.parts.size()));
    ClosingFile& part = closing.parts.emplace_back();
    SWALE_ASSIGN_OR_RETURN(part.name, object.text("name"));
    SWALE_ASSIGN_OR_RETURN(part.bytes, object.hex("bytes"));
    SWALE_ASSIGN_OR_RETURN(const uint64_t crc, object.hex("crc32c"));
    part.crc = static_cast<uint32_t>(crc);
    if (part_of(part.name, closing.server).job == 0 || part.name.find('/') != std::string::npos)
      return object.problem("name", "a file of this server");
  }
  return closing;
}

Result<ClosedServer> write_closing(io::Device& device, const std::string& directory, Closing closing) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(directory));
  const std::string path =
      directory + "/" + shard_file_name(closing.server, closing.job, ShardFileKind::kManifest, 0);
  SWALE_ASSIGN_OR_RETURN(const std::string manifest_text, io::read_file(device, path, kGiB));
  SWALE_ASSIGN_OR_RETURN(const ShardManifest manifest, ShardManifest::decode(manifest_text, path));
  const std::map<std::string, uint64_t> named = manifest.named_files();
  closing.parts.clear();
  for (const std::string& name : names) {
    const Part part = part_of(name, closing.server);
    const auto counts = named.find(name);
    // Of earlier jobs only what the manifest names: such a job may wake and write, and nobody reads it.
    if (part.job == 0 || (part.job < closing.job && counts == named.end())) continue;
    SWALE_ASSIGN_OR_RETURN(ClosingFile file,
                           measure(device, directory, name, part.kind == ShardFileKind::kSorted,
                                   counts == named.end() ? UINT64_MAX : counts->second));
    closing.parts.push_back(std::move(file));
  }
  const std::string text = encode_closing(closing);
  SWALE_RETURN_IF_ERROR(io::replace_file(device, directory + "/" + closing_name(closing.server), text));
  return ClosedServer{crc32c(text)};
}

std::vector<Status> check_closing(io::Device& device, const std::string& directory, const Manifest& manifest,
                                  uint32_t server, Closing* found) {
  std::vector<Status> problems;
  const Status listed = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const Closing closing, read_closing(device, directory, manifest, server));
    if (found != nullptr) *found = closing;
    if (closing.server != server || closing.generation != manifest.opened) {
      return corruption("{}/{}: is of server {} and generation {}, expected {} and {}", directory,
                        closing_name(server), closing.server, closing.generation, server, manifest.opened);
    }
    for (const ClosingFile& each : closing.parts) {
      const std::string path = directory + "/" + each.name;
      const Part part = part_of(each.name, server);
      const bool begins = part.kind == ShardFileKind::kLog && part.job < closing.job;
      const Result<ClosingFile> now =
          measure(device, directory, each.name, part.kind == ShardFileKind::kSorted,
                  begins ? each.bytes : UINT64_MAX);
      Status wrong = now.status();
      if (wrong.code() == Code::kNotFound) {
        wrong = corruption("{}: is missing: the store was closed (generation {}) with {} bytes in it: {}",
                           path, closing.generation, each.bytes, kRemedy);
      } else if (wrong.ok()) {
        wrong = compare(path, each, *now, closing);
      }
      if (!wrong.ok()) problems.push_back(wrong);
    }
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(directory));
    for (const std::string& name : names) {
      const Part part = part_of(name, server);
      if (part.job <= closing.job) continue;
      problems.push_back(corruption(
          "{}/{}: is of job {}, and the store was closed by job {} (generation {}): swale.json and {} are "
          "older copies: {}",
          directory, name, part.job, closing.job, closing.generation, closing_name(server), kRemedy));
    }
    return {};
  });
  if (!listed.ok()) problems.push_back(listed);
  return problems;
}

Status check_open(io::Device& device, const std::string& directory, const Manifest& manifest,
                  uint32_t server) {
  const std::string path = directory + "/" + closing_name(server);
  const Result<std::string> text = io::read_file(device, path, kClosingBytesMax);
  if (text.status().code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(text.status());
  const Result<Closing> closing = decode_closing(*text, path);
  // A crash while it was written leaves the older one. One that cannot be read says nothing, and nothing
  // needs it.
  if (!closing.ok() || closing->generation <= manifest.opened) return {};
  return older_manifest(directory, manifest, *closing);
}

Status check_no_store(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(directory));
  const auto lost = [&](const std::string& name) {
    return corruption(
        "{}/{}: is missing, and {} is of a store that was used: are the nodes in another order? Else restore "
        "it from a copy; nothing was changed",
        directory, kManifestName, name);
  };
  for (const std::string& name : names) {
    // Drafts and what the first opening of a store leaves, if it was interrupted, are of no use to anybody.
    unsigned server = 0;
    if (std::sscanf(name.c_str(), "closing-%5u.json", &server) == 1 && name == closing_name(server))
      return lost(name);
    if (std::sscanf(name.c_str(), "shard-%6u.", &server) != 1) continue;
    const Part part = part_of(name, server);
    if (part.job == 0 || part.kind == ShardFileKind::kManifest) continue;
    if (part.kind == ShardFileKind::kLog) {
      SWALE_ASSIGN_OR_RETURN(const bool unused, is_unused_log(device, directory + "/" + name));
      if (unused) continue;
    }
    return lost(name);
  }
  return {};
}

}  // namespace swale::meta
