#include <algorithm>

#include "base/json.h"
#include "imd/format/cluster_list.h"
#include "imd/format/manifest.h"
#include "imd/write/writer_lock.h"
#include "tools/dump.h"
#include "tools/imd_engine.h"

namespace swale::tools {
namespace {

constexpr size_t kSmallFileBytesMax = 256 * kMiB;

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// The kind of a file, from its name.
enum class FileKind {
  kUnknown,
  kDocument,
  kLock,
  kEpochLog,
  kSummaries,
  kAttributes,
  kStats,
  kJobId,
  kDataLog,
  kIndexLog,
  kValueLog,
  kValuePages,
  kTables
};

FileKind kind_of(std::string_view name) {
  if (imd::parse_log_name(name)) {
    if (name.ends_with(".data")) return FileKind::kDataLog;
    if (name.ends_with(".pages")) return FileKind::kValuePages;
    if (name.ends_with(".source")) return FileKind::kTables;
    return name.ends_with(".index") ? FileKind::kIndexLog : FileKind::kValueLog;
  }
  // Includes swale.json.damaged, and temporary files of killed writers.
  if (name.starts_with(imd::kManifestName) || name.starts_with("manifest.json")) return FileKind::kDocument;
  if (name.starts_with(imd::kLockName) || name.starts_with("optimize.lock")) return FileKind::kLock;
  if (name == "epochs") return FileKind::kEpochLog;
  if (name == "extrema") return FileKind::kSummaries;
  if (name == "attributes.jsonl") return FileKind::kAttributes;
  if (name == "stats.jsonl") return FileKind::kStats;
  return name == "job" ? FileKind::kJobId : FileKind::kUnknown;
}

// Whether it is a folder of logs: p and at least three digits.
bool is_part_folder(std::string_view name) {
  return name.size() >= 4 && name.front() == 'p' &&
         name.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

Status check_document(const std::string& text, const std::string& path, bool is_list) {
  return is_list ? imd::ClusterList::decode(text, path).status() : imd::Manifest::decode(text, path).status();
}

Status dump_document(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device, path, kSmallFileBytesMax));
  const bool is_list = text.find(R"("format":"swale-clusters")") != std::string::npos;
  if (const Status right = check_document(text, path, is_list); !right.ok()) out->damage(0, right);
  // Our parser limits the nesting first: the other library prints and destroys recursively.
  const Json json = JsonTree::parse(text).ok() ? Json::parse(text, nullptr, /*allow_exceptions=*/false)
                                               : Json(Json::value_t::discarded);
  if (json.is_discarded()) {
    out->line({{"what", "text"}, {"offset", 0}, {"bytes", show(text, Notation::kAuto)}});
  } else if (out->options().json) {
    out->line({{"what", is_list ? "clusters" : "manifest"}, {"offset", 0}, {"content", json}});
  } else {
    print_json_text(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return {};
}

Status dump_lock(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const io::FoundLock found, io::read_lock(device, path));
  if (!found.content.ok()) {
    const std::string_view what = found.content.status().code() == Code::kUnsupported ? "other" : "no lock";
    out->line({{"what", what}, {"offset", 0}, {"bytes", show(found.bytes, Notation::kAuto)}});
    out->damage(0, found.content.status().with_context(path));
    return {};
  }
  Json line = {{"what", "lock"}, {"offset", 0}};
  line.update(Json::parse(found.bytes));
  out->line(line);
  return {};
}

Status dump_job_id(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::string id, io::read_file(device, path, kKiB));
  out->line({{"what", "job-id"}, {"offset", 0}, {"id", show(id, Notation::kAuto)}});
  return {};
}

Status dump_content(io::Device& device, const std::string& path, DumpOutput* out) {
  const std::string name = file_name(path);
  const PartitionNumber partition = imd::parse_log_name(name).value_or(imd::LogId()).partition;
  switch (kind_of(name)) {
    case FileKind::kDocument:
      return dump_document(device, path, out);
    case FileKind::kLock:
      return dump_lock(device, path, out);
    case FileKind::kEpochLog:
      return dump_epoch_log(device, path, out);
    case FileKind::kSummaries:
      return dump_summaries(device, path, out);
    case FileKind::kAttributes:
      return dump_attributes(device, path, out);
    case FileKind::kStats:
      return dump_stats(device, path, out);
    case FileKind::kJobId:
      return dump_job_id(device, path, out);
    case FileKind::kDataLog:
      return dump_data_log(device, path, partition, out);
    case FileKind::kIndexLog:
      return dump_index_log(device, path, partition, out);
    case FileKind::kValueLog:
      return dump_value_log(device, path, partition, out);
    case FileKind::kValuePages:
      return dump_value_pages(device, path, partition, out);
    case FileKind::kTables:
      return dump_tables(device, path, out);
    case FileKind::kUnknown:
      break;
  }
  return invalid_argument(
      "{}: expected a directory, {}, {}, a file of jobs/N (manifest.json, epochs, extrema, attributes.jsonl, "
      "stats.jsonl), clusters/N/manifest.json or a log (part-N.jN.data, .index, .values, .pages or .source)",
      path, imd::kManifestName, imd::kLockName);
}

Status dump_file(io::Device& device, const std::string& path, DumpOutput* out) {
  out->begin_file(path);
  const Status status = dump_content(device, path, out);
  out->end_file();
  return status;
}

// Swale's files in a folder whose names begin so.
Status dump_folder(io::Device& device, const std::string& folder, DumpOutput* out,
                   const std::string& head = "") {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> files, device.list(folder));
  Status first;
  for (const std::string& file : files) {
    if (!file.starts_with(head) || file.ends_with(".tmp") || kind_of(file) == FileKind::kUnknown) continue;
    const Status status = dump_file(device, fmt::format("{}/{}", folder, file), out);
    if (first.ok()) first = status;
  }
  return first;
}

// With its clusters, which are directories, too.
Status dump_directory(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(path));
  std::vector<std::string> folders;
  const Result<std::vector<std::string>> jobs = device.list(imd::jobs_folder(path));
  if (jobs.ok()) {
    for (const std::string& job : *jobs) {
      if (imd::parse_job_folder(job)) folders.push_back(fmt::format("{}/{}", imd::jobs_folder(path), job));
    }
  }
  for (const std::string& name : names) {
    if (is_part_folder(name)) folders.push_back(fmt::format("{}/{}", path, name));
  }
  Status first = dump_file(device, imd::manifest_path(path), out);
  const auto note = [&](const Status& status) {
    if (first.ok()) first = status;
  };
  for (const std::string& folder : folders) note(dump_folder(device, folder, out));
  const Result<std::vector<uint32_t>> clusters = store::list_jobs(device, imd::cluster_claims(path));
  if (!clusters.ok()) note(clusters.status());
  for (size_t i = 0; clusters.ok() && i < clusters->size(); ++i) {
    const std::string list = imd::cluster_list_path(path, (*clusters)[i]);
    SWALE_ASSIGN_OR_RETURN(const bool listed, device.exists(list));
    if (!listed) continue;  // of a pass that works, or was killed
    note(dump_file(device, list, out));
    const std::string cluster = imd::cluster_folder(path, (*clusters)[i]);
    SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(imd::manifest_path(cluster)));
    if (there) note(dump_directory(device, cluster, out));
    note(dump_folder(device, imd::clusters_folder(path), out, file_name(cluster) + "."));  // its logs
  }
  SWALE_ASSIGN_OR_RETURN(const bool copied, device.exists(imd::cluster_list_copy_path(path)));
  if (copied) note(dump_file(device, imd::cluster_list_copy_path(path), out));
  return first;
}

}  // namespace

Status imd_dump(io::Device& device, const std::string& path, DumpOutput* out) {
  if (device.list(path).ok()) return dump_directory(device, path, out);
  SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(path));
  if (!there) return error(Code::kNotFound, Scope::kFile, "{}: no such file or directory", path);
  return dump_file(device, path, out);
}

}  // namespace swale::tools
