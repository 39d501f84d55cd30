// LogId and the names of the files in a massive directory. The number of the job that made a file is part of
// the file's name: a job creates its files exclusively and never opens another job's files for writing.
//
//   DIR/swale.json                       the manifest (manifest.h); a copy of the newest generation's
//   DIR/swale.lock                       who writes
//   DIR/jobs/0007/manifest.json          generation 7 (generation.h): the manifest as job 7 left it
//   DIR/jobs/0007/epochs                 its epoch log (epoch_log.h): which epochs are committed
//   DIR/jobs/0007/extrema                summaries of field extrema of the epochs that job 7 wrote
//   DIR/jobs/0007/attributes.jsonl       documents that these epochs brought (attributes.h)
//   DIR/jobs/0007/stats.jsonl            what these epochs cost
//   DIR/clusters                         what `swale optimize` makes (cluster_list.h)
//   DIR/p000/part-000003.j0007.data      data log of partition 3; also .index, .values, .pages and .source;
//                                        1,024 partitions a folder
//   DIR.part-000003.j0007.data           the same, if DIR keeps its logs beside itself (LogPlace)
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/numbers.h"

namespace swale::imd {

inline constexpr char kManifestName[] = "swale.json";
inline constexpr char kJobsFolderName[] = "jobs";
inline constexpr char kClustersFolderName[] = "clusters";
inline constexpr uint32_t kJobNumberMax = 65'535;

// Where a directory keeps its logs. Beside it, two folders less are looked up before a log is open: each is a
// read of storage, or two, for whoever opens it with nothing in memory.
enum class LogPlace : uint8_t { kInFolders, kBeside };

// The logs of one partition of one job.
struct LogId {
  uint32_t job = 0;  // its number
  PartitionNumber partition = {};
  LogPlace place = LogPlace::kInFolders;  // of all logs of the directory, so it tells none from another

  std::strong_ordering operator<=>(const LogId& other) const {
    return std::tie(job, partition) <=> std::tie(other.job, other.partition);
  }
  bool operator==(const LogId& other) const { return *this <=> other == 0; }
};

std::string manifest_path(const std::string& directory);
std::string jobs_folder(const std::string& directory);
std::string job_folder(const std::string& directory, uint32_t job);
std::string generation_path(const std::string& directory, uint32_t job);
std::string epoch_log_path(const std::string& directory, uint32_t job);
std::string summary_log_path(const std::string& directory, uint32_t job);
std::string attributes_path(const std::string& directory, uint32_t job);
std::string stats_path(const std::string& directory, uint32_t job);

std::string clusters_folder(const std::string& directory);
std::string part_folder(const std::string& directory, PartitionNumber partition);
// That the partition's logs are in, wherever they are.
std::string log_folder(const std::string& directory, LogId log);
std::string data_log_path(const std::string& directory, LogId log);
std::string index_log_path(const std::string& directory, LogId log);
std::string value_log_path(const std::string& directory, LogId log);
std::string value_pages_path(const std::string& directory, LogId log);
std::string table_log_path(const std::string& directory, LogId log);
// Of a writer's temporary files, which no reader looks at: a digit follows.
std::string spill_path_stem(const std::string& directory, LogId log);

// The job of a folder in DIR/jobs; none for any other name.
std::optional<uint32_t> parse_job_folder(std::string_view name);
// The log of a file in DIR/pNNN; none for any other name.
std::optional<LogId> parse_log_name(std::string_view name);

}  // namespace swale::imd
