#include "meta/store/reading.h"

#include <algorithm>
#include <utility>

namespace swale::meta {
namespace {

constexpr int kAttemptsMax = 100;

Result<ReadParts> attempt(io::Device& below, const std::string& directory, uint32_t server,
                          ShardOptions options, size_t files_max) {
  ReadParts parts;
  parts.device = std::make_unique<io::OverlayDevice>(below);
  parts.attributes = std::make_unique<AttributeTable>(server, files_max);
  options.directory = directory;
  options.shard = server;
  options.table = parts.attributes.get();
  SWALE_ASSIGN_OR_RETURN(parts.shard, Shard::open(*parts.device, options, &parts.report));
  return parts;
}

}  // namespace

Result<std::string> files_as_they_are(io::Device& device, const std::string& directory, uint32_t server) {
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> names, device.list(directory));
  std::sort(names.begin(), names.end());
  const std::string head = fmt::format("shard-{:06}.", server);
  std::string all;
  for (const std::string& name : names) {
    if (!name.starts_with(head)) continue;
    uint64_t bytes = 0;
    if (const auto file = device.open(directory + "/" + name, io::OpenMode::kRead); file.ok()) {
      SWALE_ASSIGN_OR_RETURN(bytes, (*file)->size());
    }
    all += fmt::format("{} {}\n", name, bytes);
  }
  return all;
}

Result<ReadParts> read_server(io::Device& below, const std::string& directory, uint32_t server,
                              const ShardOptions& options, size_t files_max) {
  for (int attempts = 1;; ++attempts) {
    SWALE_ASSIGN_OR_RETURN(const std::string before, files_as_they_are(below, directory, server));
    Result<ReadParts> parts = attempt(below, directory, server, options, files_max);
    if (parts.ok() || attempts == kAttemptsMax) return parts;
    SWALE_ASSIGN_OR_RETURN(const std::string after, files_as_they_are(below, directory, server));
    if (before == after) return parts;
  }
}

}  // namespace swale::meta
