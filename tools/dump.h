// `swale dump`: shows the content of a file of a massive directory, place by place. Damage is shown at its
// place and does not end the walk. One line per thing: for people, or JSON.
//
// Threads: one at a time. Memory: one segment of an index log, one chunk of a data log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/device.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {

struct DumpOptions {
  bool json = false;
  bool records = false;
  uint64_t lines_max = ~uint64_t{0};  // per file
  Notation notation = Notation::kAuto;
};

class DumpOutput {
 public:
  explicit DumpOutput(const DumpOptions& options) : options_(options) {}

  const DumpOptions& options() const { return options_; }
  // `part`: of what the path leads to, if it is dumped in parts; people read it behind the path, and programs
  // as a member.
  struct Part {
    std::string words;              // "server 0"
    Json members = Json::object();  // {"server": 0}
  };
  void begin_file(const std::string& path) { begin_file(path, Part()); }
  void begin_file(const std::string& path, Part part);
  void end_file();  // reports what the limit left out
  // Shows the progress of the walk over a file on a terminal.
  void progress(uint64_t offset, uint64_t file_bytes);
  // `thing` has "what" and usually "offset" first.
  void line(const Json& thing);
  void damage(uint64_t offset, const Status& cause);
  bool damaged() const { return damaged_; }
  // The first cause that was a limit of this process: what was shown is then incomplete, and nothing is known
  // of damage.
  const Status& failure() const { return failure_; }

 private:
  const DumpOptions options_;
  std::string path_;
  Part part_;
  uint64_t lines_ = 0;
  bool damaged_ = false;
  Status failure_;
  const bool wants_progress_ = ProgressBar::wanted_beside_output();
  std::optional<ProgressBar> bar_;  // of this file
};

// Each fails only if the file cannot be opened or read.
Status dump_data_log(io::Device& device, const std::string& path, PartitionNumber partition, DumpOutput* out);
Status dump_value_log(io::Device& device, const std::string& path, PartitionNumber writer, DumpOutput* out);
// Of the lossy format.
Status dump_tables(io::Device& device, const std::string& path, DumpOutput* out);
Status dump_value_pages(io::Device& device, const std::string& path, PartitionNumber writer, DumpOutput* out);
Status dump_index_log(io::Device& device, const std::string& path, PartitionNumber partition,
                      DumpOutput* out);
// The files of a job's folder.
Status dump_epoch_log(io::Device& device, const std::string& path, DumpOutput* out);
Status dump_summaries(io::Device& device, const std::string& path, DumpOutput* out);
Status dump_attributes(io::Device& device, const std::string& path, DumpOutput* out);
Status dump_stats(io::Device& device, const std::string& path, DumpOutput* out);

}  // namespace swale::tools
