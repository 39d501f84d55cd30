// Old jobs and later ones in one directory, and what is checked of their epochs. For remains_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults {

inline constexpr Seconds kPatience(120);  // for what must happen: hanging is a failure, being slow is not

// A job's epochs are told from another's by their records.
inline constexpr uint64_t kOldRecords = 900;
inline constexpr uint64_t kLaterRecords = 700;
inline constexpr int kLaterEpochs = 2;

uint64_t rounds();  // by SWALE_FAULT_ROUNDS

// Where the jobs of a case write: on /tmp, or in memory.
class Place {
 public:
  explicit Place(uint64_t seed);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string path() const { return root_ + "/directory"; }
  std::string other_path() const { return root_ + "/other"; }

  LaunchParams old_job(int size, int epochs) const { return job(size, epochs, kOldRecords, "old"); }
  LaunchParams later_job(int size) const { return job(size, kLaterEpochs, kLaterRecords, "later"); }

 private:
  // A scheduler gives the next job another id; the rendezvous directory is of the job, too.
  LaunchParams job(int size, int epochs, uint64_t records, const std::string& id) const;

  JobFiles files_;
  std::string root_;
};

// What is wrong: check_job_files, and whose each epoch is. The old job's come first, at least those which it
// was told of; then exactly those of the later job, if there was one.
std::vector<std::string> check_epochs(const std::string& path, const Launcher& old, const Launcher* later);

struct Tally {
  std::atomic<int> cases{0}, refused{0}, done{0}, old_epochs{0}, later_epochs{0};
  mutable std::mutex mutex;
  std::map<std::string, int> codes;  // of the refused, by the first words

  std::string text() const;
};

// Failures of the test if check_epochs finds any. `later` and `tally` may be null.
void expect_epochs(const std::string& name, const std::string& path, const Launcher& old,
                   const Launcher* later, Tally* tally);
void expect_done(const std::string& name, Launcher* job);
// A rank that was told ends by itself, with a code and a cause: a peer, the lock, or who has the directory
// now. `must`: it cannot have finished.
void expect_told(const std::string& name, const Launcher& job, int rank, bool must, Tally* tally);
void expect_whole(const std::string& name, const std::string& path, int64_t epochs);

int command(const std::string& words);       // the exit code of `swale WORDS`
int64_t epochs_of(const std::string& path);  // -1: cannot be opened
void stop_all(Launcher* job);  // until all stand still: a thread within a system call goes on to its end
void remove_tree(const std::string& path);
void watch_at_random(Rng* rng, uint64_t microseconds_max, Launcher* job);

}  // namespace swale::faults
