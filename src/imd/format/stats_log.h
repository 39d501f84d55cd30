// StatsLog: jobs/NNNN/stats.jsonl, the statistics of the epochs that a job wrote: one line of JSON each,
// appended by the job's rank 0 right after it has committed the epoch.
//
// An epoch does not depend on its line: it is written without a sync (the log is synced when the directory is
// closed), a failure to write it fails nothing, and readers do without. Lines are found by epoch_id; those of
// epochs that were dropped stay and are passed over. docs/design/statistics.md has the reasons,
// docs/formats/stats.md the format.
//
// Threads: a StatsLog belongs to one thread at a time; a StatsReader is thread-safe.
// Limits: a line has at most kStatsLineBytesMax bytes. A StatsReader keeps 24 bytes or so an epoch, never the
// file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/epoch_stats.h"
#include "imd/format/log_names.h"
#include "io/device.h"

namespace swale::imd {

inline constexpr size_t kStatsLineBytesMax = 64 * kKiB;

// One line, with its checksum and line feed.
std::string encode_stats_line(uint64_t epoch_id, EpochNumber epoch, const EpochStats& stats);
// kCorruption, naming file and offset, for anything else.
Result<EpochStats> decode_stats_line(Bytes line, const std::string& path, uint64_t offset);

class StatsLog {
 public:
  StatsLog(io::Device& device, const std::string& directory, uint32_t job)
      : device_(device), path_(stats_path(directory, job)) {}

  // After the first failure, which is logged, no more lines are written.
  void append(uint64_t epoch_id, EpochNumber epoch, const EpochStats& stats);
  // Makes the lines durable.
  void sync();

 private:
  io::Device& device_;
  const std::string path_;
  std::unique_ptr<io::File> file_;  // from the first line on
  uint64_t end_ = 0;
  bool given_up_ = false;
};

class StatsReader {
 public:
  StatsReader(io::Device& device, const std::string& directory, uint32_t job)
      : device_(device), path_(stats_path(directory, job)) {}

  // kNotFound if there is no line for the epoch: what is there was written by a build that kept none, or went
  // down with its machine. kCorruption if the line is damaged.
  Result<EpochStats> get(uint64_t epoch_id);

 private:
  struct Place {
    uint64_t offset;
    uint32_t bytes;
  };

  Status catch_up() REQUIRES(mutex_);  // with lines that were added since
  size_t take_lines(Bytes chunk) REQUIRES(mutex_);
  Result<EpochStats> read(const Place& place) const REQUIRES(mutex_);

  io::Device& device_;
  const std::string path_;
  Mutex mutex_;
  std::unique_ptr<io::File> file_ GUARDED_BY(mutex_);
  uint64_t scanned_ GUARDED_BY(mutex_) = 0;                       // the end of the last whole line
  std::unordered_map<uint64_t, Place> lines_ GUARDED_BY(mutex_);  // by epoch_id
};

}  // namespace swale::imd
