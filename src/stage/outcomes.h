// Outcomes: what became of each file of a stage: counts for those who watch, failures and remarks for the
// end, and the lines of the manifest that leads back.
//
// Threads: all calls. The counts may be read while others count.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "stage/plan.h"

namespace swale::stage {

struct StageCounts {
  std::atomic<uint64_t> files{0}, bytes{0};  // to stage
  std::atomic<uint64_t> files_done{0}, bytes_done{0};
  std::atomic<uint64_t> files_before{0}, bytes_before{0};  // by an earlier run of this command
  std::atomic<uint64_t> files_failed{0};
  std::atomic<uint64_t> bytes_copied{0};  // by this run, of whole files or not
};

class Outcomes {
 public:
  enum class By { kThisRun, kEarlierRun };

  // `keep_way_back`: way_back will be asked for.
  explicit Outcomes(bool keep_way_back) : keeps_way_back_(keep_way_back) {}

  StageCounts& counts() { return counts_; }
  const StageCounts& counts() const { return counts_; }

  // No checksum: a link.
  void done(const Entry& entry, std::optional<uint32_t> crc, By by) EXCLUDES(mutex_);
  // Counts it, unless it is kAborted: then the stage was told to stop.
  void fail(const std::string& path, const Status& status) EXCLUDES(mutex_);
  void remark(std::string text) EXCLUDES(mutex_);

  std::vector<Failure> failures() const EXCLUDES(mutex_);
  std::vector<std::string> remarks() const EXCLUDES(mutex_);
  // The lines in order.
  std::string way_back() const EXCLUDES(mutex_);

 private:
  static constexpr size_t kFailuresKept = 10'000;  // files_failed counts all

  const bool keeps_way_back_;
  StageCounts counts_;
  mutable Mutex mutex_;
  std::vector<Failure> failures_ GUARDED_BY(mutex_);
  std::vector<std::string> remarks_ GUARDED_BY(mutex_);
  std::vector<std::string> way_back_ GUARDED_BY(mutex_);
};

}  // namespace swale::stage
