#include "imd/format/log_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "io/anchor.h"
#include "io/device.h"

namespace swale::imd {
namespace {

std::string log_path(const std::string& directory, LogId log, std::string_view kind) {
  const bool beside = log.place == LogPlace::kBeside;
  return fmt::format("{}{}part-{:06}.j{:04}.{}",
                     beside ? io::without_trailing_slashes(directory) : part_folder(directory, log.partition),
                     beside ? '.' : '/', log.partition, log.job, kind);
}

std::string in_job_folder(const std::string& directory, uint32_t job, std::string_view name) {
  return fmt::format("{}/{}", job_folder(directory, job), name);
}

// All of `digits`, at least `width` of them, as job folders and logs are numbered.
std::optional<uint32_t> parse_number(std::string_view digits, size_t width) {
  uint32_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, number);
  const bool padded = digits.size() == width || (digits.size() > width && digits.front() != '0');
  if (failure != std::errc() || stop != end || !padded) return std::nullopt;
  return number;
}

}  // namespace

std::string manifest_path(const std::string& directory) {
  return fmt::format("{}/{}", directory, kManifestName);
}

std::string jobs_folder(const std::string& directory) {
  return fmt::format("{}/{}", directory, kJobsFolderName);
}

std::string job_folder(const std::string& directory, uint32_t job) {
  return fmt::format("{}/{}/{:04}", directory, kJobsFolderName, job);
}

std::string generation_path(const std::string& directory, uint32_t job) {
  return in_job_folder(directory, job, "manifest.json");
}

std::string epoch_log_path(const std::string& directory, uint32_t job) {
  return in_job_folder(directory, job, "epochs");
}

std::string summary_log_path(const std::string& directory, uint32_t job) {
  return in_job_folder(directory, job, "extrema");
}

std::string attributes_path(const std::string& directory, uint32_t job) {
  return in_job_folder(directory, job, "attributes.jsonl");
}

std::string stats_path(const std::string& directory, uint32_t job) {
  return in_job_folder(directory, job, "stats.jsonl");
}

std::string clusters_folder(const std::string& directory) {
  return fmt::format("{}/{}", directory, kClustersFolderName);
}

std::string part_folder(const std::string& directory, PartitionNumber partition) {
  return fmt::format("{}/p{:03}", directory, partition / 1024);
}

std::string log_folder(const std::string& directory, LogId log) {
  return log.place == LogPlace::kBeside ? io::parent_directory(directory)
                                        : part_folder(directory, log.partition);
}

std::string data_log_path(const std::string& directory, LogId log) {
  return log_path(directory, log, "data");
}

std::string index_log_path(const std::string& directory, LogId log) {
  return log_path(directory, log, "index");
}

std::string value_log_path(const std::string& directory, LogId log) {
  return log_path(directory, log, "values");
}

std::string value_pages_path(const std::string& directory, LogId log) {
  return log_path(directory, log, "pages");
}

std::string table_log_path(const std::string& directory, LogId log) {
  return log_path(directory, log, "source");
}

std::string spill_path_stem(const std::string& directory, LogId log) {
  return log_path(directory, log, "spill");
}

std::optional<uint32_t> parse_job_folder(std::string_view name) {
  const std::optional<uint32_t> number = parse_number(name, 4);
  return number && *number <= kJobNumberMax ? number : std::nullopt;
}

std::optional<LogId> parse_log_name(std::string_view name) {
  constexpr std::string_view kHead = "part-";
  // One that lies beside its directory has that one's name in front.
  const size_t head = name.find("." + std::string(kHead));
  LogPlace place = LogPlace::kInFolders;
  if (head != std::string_view::npos && parse_job_folder(name.substr(0, head))) {
    name.remove_prefix(head + 1);
    place = LogPlace::kBeside;
  }
  const size_t job_dot = name.find(".j");
  const size_t kind_dot = name.rfind('.');
  if (!name.starts_with(kHead) || job_dot == std::string_view::npos || kind_dot <= job_dot)
    return std::nullopt;
  const std::string_view kind = name.substr(kind_dot + 1);
  if (kind != "data" && kind != "index" && kind != "values" && kind != "pages" && kind != "source")
    return std::nullopt;
  const auto partition = parse_number(name.substr(kHead.size(), job_dot - kHead.size()), 6);
  const auto job = parse_number(name.substr(job_dot + 2, kind_dot - job_dot - 2), 4);
  if (!partition || !job || *job > kJobNumberMax) return std::nullopt;
  return LogId{*job, PartitionNumber(*partition), place};
}

}  // namespace swale::imd
