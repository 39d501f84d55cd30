// BackingClaim: the one job that has a backing directory, with one server or with one on each of its nodes.
//
//   .swale (0700)    := lock meeting? JOB lost+found-JOB*   the last: what a recovery without all nodes has
//                                                          kept (src/fuse/job_losses.h), the user's to remove
//   lock             the server that took the backing holds it locked; the kernel unlocks it with the process
//   meeting          where the ranks of a job find each other (net/meeting/rendezvous.h)
//   JOB (0700)       := servers-START and what drains leave (drain_mark.h)
//   servers-START    := sealed document "swale-servers" 1: hosts. START is drawn: each start of the job's
//                       servers has another one, and removes those before it
//
// A lock is known on one machine, on many file systems. So the folder JOB says that a job has the backing,
// as long as it has not left it: another job makes its own folder first, looks for others then, and gives
// way. A server that was cut off, and wakes when its job was started anew or has ended, does not find its
// servers-START: it must not change the backing any more (expect_own).
//
// Threads: one; expect_own by any. Errors: kBusy: a server lives, or another job has left bytes that are not
// drained; the message says what to do. kInvalidArgument: `.swale` is another user's. kAborted (EIO): the
// backing is not this server's any more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::fs {

// In `.swale`, beside the folders of jobs.
inline constexpr char kClaimLock[] = "lock";
inline constexpr char kMeetingFolder[] = "meeting";
inline constexpr char kLostPrefix[] = "lost+found-";

class BackingClaim {
 public:
  // By one server of the job. `root`: of the backing directory; `path`: for messages; `job`: the only one
  // that may have left something; `hosts`: where its servers run, for messages of others.
  static Result<std::unique_ptr<BackingClaim>> take(int root, const std::string& path, const std::string& job,
                                                    const std::string& hosts);
  // By the others, which that one has told.
  static Result<std::unique_ptr<BackingClaim>> join(int root, const std::string& path, const std::string& job,
                                                    uint64_t start);

  // The folder where ranks meet, made if it is not there. Its descriptor outlives a mount over the backing.
  static Result<io::Descriptor> open_meeting(int root, const std::string& path);
  // Before the servers of a job meet anew: those of its starts until now find that the backing is not theirs.
  static Status end_starts(int root, const std::string& path, const std::string& job);

  uint64_t start() const { return start_; }
  const std::string& job() const { return job_; }

  // Before a change of the backing.
  Status expect_own() const noexcept;

  // By the server that took it: all of the job is on the backing, or given up: removes what it has in
  // `.swale`, and that.
  Status leave() noexcept;

 private:
  BackingClaim(int root, std::string path, std::string job)
      : root_(root), path_(std::move(path)), job_(std::move(job)) {}
  Result<bool> lock();
  Status open_own();
  Status expect_no_other_job() const;
  Status begin_start(const std::string& hosts);
  std::string start_name() const;

  const int root_;
  const std::string path_;
  const std::string job_;
  uint64_t start_ = 0;
  io::Descriptor folder_;
  io::Descriptor lock_;
  io::Descriptor own_;
};

}  // namespace swale::fs
