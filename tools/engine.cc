#include "tools/engine.h"

#include "base/json.h"
#include "base/sealed_document.h"
#include "imd/format/manifest.h"
#include "tools/meta_engine.h"
#include "tools/tier_engine.h"
#include "tools/tree_engine.h"

namespace swale::tools {
namespace {

constexpr std::string_view kManifestName = "swale.json";
constexpr int kFolderDepthMax = 3;  // DIR/jobs/0007/epochs

// The format that a folder's manifest names; "" if the manifest is missing or damaged.
std::string format_in(io::Device& device, const std::string& folder) {
  const Result<std::string> text =
      io::read_file(device, fmt::format("{}/{}", folder, kManifestName), imd::kManifestBytesMax);
  if (!text.ok() || !is_sealed(*text)) return {};
  const Result<JsonTree> json = JsonTree::parse(*text);
  return json.ok() ? json->root().find("format").string().value_or("") : std::string();
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string known_formats(std::span<const Engine> table) {
  std::string names;
  for (const Engine& engine : table) {
    if (!names.empty()) names += ", ";
    names += fmt::format("{} ({})", engine.format, engine.directory);
  }
  return names;
}

}  // namespace

std::span<const Engine> engines() {
  static const Engine table[] = {kImdEngine, kMetaEngine, kTierEngine, kTreeEngine};
  return table;
}

Result<const Engine*> engine_of(io::Device& device, const std::string& path, std::span<const Engine> table) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const auto look = [&] {
    std::string format = format_in(device, folder);
    for (const Engine& engine : table)
      if (format.empty() && engine.made && engine.made(device, folder)) format = engine.format;
    return format;
  };
  std::string format = look();
  if (format.empty() && !device.list(folder).ok()) {
    for (int depth = 0; format.empty() && depth < kFolderDepthMax && folder != "." && folder != "/";
         ++depth) {
      folder = parent_of(folder);
      format = look();
    }
  }
  if (format.empty()) return &table.front();
  for (const Engine& engine : table) {
    if (engine.format == format) return &engine;
  }
  return error(Code::kUnsupported, Scope::kFile,
               "{}/{}: has the format \"{}\", which this swale does not know; it knows {}. A newer swale may",
               folder, kManifestName, format, known_formats(table));
}

Status expect_engine(io::Device& device, const std::string& path, const Engine& wanted,
                     std::span<const Engine> table) {
  SWALE_ASSIGN_OR_RETURN(const Engine* found, engine_of(device, path, table));
  if (found->format == wanted.format) return {};
  return error(Code::kUnsupported, Scope::kFile, "{}: is a {}; this command is for a {}", path,
               found->directory, wanted.directory);
}

}  // namespace swale::tools
