// BackingClaim: the one job that has a backing directory: a lock in its `.swale`, which the kernel takes away
// with the process.
//
//   .swale (0700)  := lock JOB*      lock: locked by the living server; JOB: see drain_mark.h
//
// Threads: one. Errors: kBusy: a server lives, or another job has left bytes that are not drained; the
// message says what to do. kInvalidArgument: `.swale` is another user's.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::fs {

class BackingClaim {
 public:
  // `root`: of the backing directory; `path`: for messages; `job`: the only one that may have left something.
  static Result<std::unique_ptr<BackingClaim>> take(int root, const std::string& path,
                                                    const std::string& job);

  // All of the job is on the backing, or given up: removes what it has in `.swale`, and that.
  Status leave() noexcept;

 private:
  BackingClaim(int root, std::string path, std::string job)
      : root_(root), path_(std::move(path)), job_(std::move(job)) {}
  Result<bool> lock();
  Status expect_no_other_job() const;

  const int root_;
  const std::string path_;
  const std::string job_;
  io::Descriptor folder_;
  io::Descriptor lock_;
};

}  // namespace swale::fs
