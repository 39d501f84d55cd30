// What a test of whole jobs needs around the launcher: a scratch directory, and the later look at what the
// ranks of fault_writer wrote.
// Threads: one object is used by one thread, several may be used by several.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/launcher.h"

namespace swale::faults {

// The deadlines of JobFiles::job.
constexpr Seconds kJoinDeadline(30);
constexpr Seconds kSilenceDeadline(10);  // net.silence_deadline_s
constexpr Seconds kCloseDeadline(10);    // net.close_deadline_s

// A survivor has its news at the latest at the deadline that applies and this much later. A deadline counts
// only time in which the survivor ran; the margin is for a machine that lets it run late (a load of 8 on 2
// cores, sanitizers).
constexpr Seconds kMargin(15);

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
  // After `swale repair`: epochs that it made of whole runs which nobody had committed may be there, too.
  // They have neither step nor time, so what should be in them is not known.
  bool repaired = false;
};

// Reads the whole directory with the C interface and `swale verify`: at least `promised` epochs, every record
// of every epoch exactly once, right, and found by key. What is wrong, in words.
std::vector<std::string> check_job_files(const std::string& path, int64_t promised,
                                         const JobContents& contents = {});

// Epochs of which some rank was told that they are there.
int64_t promised_epochs(const Launcher& job);

// Calls `run` with 0 to count - 1, a few at a time: most of such a case is waiting.
void in_parallel(size_t count, const std::function<void(size_t)>& run);

}  // namespace swale::faults
