// What a test of whole jobs needs around the launcher: a scratch directory, the later look at what the ranks of
// fault_writer wrote, and what a job may leave on the machine.
// Threads: one object is used by one thread, several may be used by several.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/launcher.h"

namespace swale::faults {

class JobFiles {
 public:
  JobFiles();
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

  // A job of fault_writer into this directory; it has the same id each time, as a restarted job may have.
  LaunchParams job(int size, int epochs, uint64_t records) const;
  std::string path() const { return scratch_ + "/directory"; }
  const std::string& scratch() const { return scratch_; }

 private:
  std::string scratch_;
};

struct JobContents {
  bool large = false;         // the jobs ran with SWALE_FAULT_LARGE
  uint64_t records_more = 0;  // than there should be: a canary
};

// Reads the whole directory with the C interface and `swale verify`: at least `promised` epochs, every record of every
// epoch exactly once, right, and found by key. What is wrong, in words.
std::vector<std::string> check_job_files(const std::string& path, int64_t promised,
                                         const JobContents& contents = {});

// Epochs of which some rank was told that they are there.
int64_t promised_epochs(const Launcher& job);

// Files in /dev/shm of UCX or Swale, and System V segments (by number), that no living process has mapped, opened or
// made.
std::set<std::string> orphaned_shared_memory();

// Calls `run` with 0 to count - 1, a few at a time: most of such a case is waiting.
void in_parallel(size_t count, const std::function<void(size_t)>& run);

}  // namespace swale::faults
