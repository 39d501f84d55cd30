// Engine: the functions of `swale info`, `verify`, `stats`, `dump` and `repair` for directories of one
// format. One table has a row for each engine. The commands find the row by the member "format" of the
// directory's manifest (swale.json), and share options, output and exit codes.
//
// An engine's manifest is a sealed JSON object (base/sealed_document.h) with the member "format". An engine
// without one says itself whether it made a directory.
// Threads: free functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "tools/dump.h"
#include "tools/options.h"

namespace swale::tools {

using ProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// A count of a report: its name in JSON, and the words after its number.
struct Count {
  std::string_view name;   // "bytes_checked"
  std::string_view words;  // "bytes checked"
  uint64_t value = 0;
};

struct InfoReport {
  Json json;
  std::string text;
  std::vector<Status> problems = {};  // what the report does not include: the command fails after showing it
};

struct VerifyRequest {
  size_t problems_max = 100;
  ProgressFn progress;  // empty: no progress is shown
};
struct VerifyReport {
  std::vector<Status> problems;
  std::vector<Count> checked;
};

struct StatsRequest {
  enum class Show { kTable, kPlot, kJson };
  std::optional<int64_t> epoch;
  Show show = Show::kTable;
};
struct StatsReport {
  std::vector<Json> lines;  // for kJson
  std::string text;         // for the other formats
};

struct RepairRequest {
  bool dry_run = false;
  ProgressFn progress;
};
struct RepairReport {
  Json counts;           // members of the JSON object
  std::string headline;  // after "PATH: "
  std::string remark;    // a line; "": none
  std::vector<std::string> found;
  std::vector<std::string> done;
  std::vector<std::string> lost;
};

struct Engine {
  std::string_view format;     // as in the manifest: "swale-imd"
  std::string_view directory;  // the words for such a directory: "massive directory"
  // Whether the engine made the directory, for an engine whose directories have no manifest; null: they have
  // one.
  bool (*made)(io::Device& device, const std::string& path) = nullptr;
  Result<InfoReport> (*info)(const std::string& path);
  Result<VerifyReport> (*verify)(const std::string& path, const VerifyRequest& request);
  Result<StatsReport> (*stats)(const std::string& path, const StatsRequest& request);
  // Dumps a directory, or a file of one.
  Status (*dump)(io::Device& device, const std::string& path, DumpOutput* out);
  Result<RepairReport> (*repair)(io::Device& device, const std::string& path, const RepairRequest& request);
};

std::span<const Engine> engines();
extern const Engine kImdEngine;

// The engine of the directory at `path`, or of the directory that has the file `path`. kUnsupported names a
// format that is not in the table. If the manifest is missing or damaged and no engine without one made the
// directory, returns the first engine of the table, which finds what is left or says what is wrong.
Result<const Engine*> engine_of(io::Device& device, const std::string& path,
                                std::span<const Engine> table = engines());

// For commands of one engine only: kUnsupported if the directory is another engine's.
Status expect_engine(io::Device& device, const std::string& path, const Engine& wanted,
                     std::span<const Engine> table = engines());

}  // namespace swale::tools
