// Stage: copies files between where a job runs and where they stay, checks every byte, and can go on where a
// kill has ended it. docs/design/staging.md has the reasons.
//
//   plan ─► folders ─► pieces of large files, batches of small ones, links (by several threads)
//        ─► modes and times of folders ─► names durable ─► status "done", journal removed
//
// Invariants: (1) a destination's name leads to what was there before, or to the whole new file; (2) "done"
//   is said only when every file of the plan has its name, was checked, and, for "out", is durable with it;
//   (3) a failure of one file does not stop the others.
// Threads: run is called once, by one thread. It starts options.threads - 1 workers and one that calls
//   `tick`. Any thread may set the stop flag: the stage ends at its next chunk.
// Errors: open: kInvalidArgument, or why nothing was begun (kBusy: another stage has this status file). run:
//   its report says what failed.
// Files are made with mode 0666 less the umask before they get their own: callers set the umask to 077.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/lock_file.h"
#include "stage/status_file.h"

namespace swale::stage {

class Journal;
struct CopyPlace;

struct StageReport {
  StageState state = StageState::kDone;
  std::vector<Failure> failures;
  std::vector<std::string> remarks;
};

class Stage {
 public:
  using Tick = std::function<void(const StageCounts& counts)>;
  // Of the destination's files; none: the operating system's. For tests, which make it fail.
  using WrapDevice = std::function<std::unique_ptr<io::Device>(io::Device& device)>;
  static constexpr Nanos kTickNanos = milliseconds(250);
  static constexpr int kTicksAStatus = 4;

  static Result<std::unique_ptr<Stage>> open(const StageOptions& options, const std::atomic<bool>& stop,
                                             const WrapDevice& wrap = {});
  ~Stage();

  const StageCounts& counts() const { return outcomes_.counts(); }
  StageReport run(const Tick& tick);

  // Removes what an unfinished stage of these options has left: parts, journal, status.
  static Status clean(const StageOptions& options);

 private:
  Stage(const StageOptions& options, const std::atomic<bool>& stop);
  Status lock();
  Status begin(const WrapDevice& wrap);
  Status open_places(const WrapDevice& wrap);
  Status open_journal();
  void work();
  void remove_strays();
  StageState end();
  Status write_now(StageState state);
  template <class Work>
  void with_ticks(const Tick& tick, const Work& work);
  uint64_t owner() const;  // of the journal: the same for the same command

  const StageOptions options_;
  const std::atomic<bool>& stop_;
  const ProcessIdentity process_ = this_process();
  const Nanos began_ = system_clock().now();
  Outcomes outcomes_;

  std::unique_ptr<io::Device> home_;    // of status, journal and lock
  std::unique_ptr<io::Device> plain_;   // of the destination, as the operating system has it
  std::unique_ptr<io::Device> device_;  // plain_, or what wraps it
  std::optional<io::LockFile> lock_;
  Root source_, destination_;
  std::optional<Entry> top_;  // the destination's folder, if it is new
  std::unique_ptr<CopyPlace> place_;
  Plan plan_;
  std::unique_ptr<Journal> journal_;
};

}  // namespace swale::stage
