// JobClaim: the number under which one job writes into a directory, and the fence that stops the jobs before
// it.
//
// A claim is an empty file, or a folder, whose name has the number. Only one job can make it, and nobody
// removes it: so no number is given twice. A successor makes the next claim, durably, before it reads
// anything; a job looks after each sync, before it answers, whether the next claim is there (fence). So what
// a job has answered OK is there when its successor reads (docs/design/record-log.md).
//
// Threads: fence() by any thread, concurrently; the rest by one at a time.
// Errors: those of the device; kBusy: other jobs claim numbers concurrently; kResourceExhausted beyond
// number_max; kAborted of fence() names the job that has taken over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/device.h"

namespace swale::store {

// How the claims of one directory are spelled.
struct ClaimNames {
  std::string folder;                         // that has the claims; exists
  std::string directory;                      // that people know, for messages
  std::function<std::string(uint32_t)> path;  // of the claim of a number
  // The number of the job that a name in the folder belongs to, claim or not; none: no job's.
  std::function<std::optional<uint32_t>(std::string_view)> number;
  enum class Kind { kFile, kFolder } kind = Kind::kFile;
  uint64_t number_min = 1;  // no earlier job has had this number or a higher one, if its claim is lost
  uint32_t number_max = UINT32_MAX - 1;
};

// The numbers that the folder's names have, ascending, each once. None if there is no folder.
Result<std::vector<uint32_t>> list_jobs(io::Device& device, const ClaimNames& names);

class JobClaim {
 public:
  // Claims the number after all that are there, durably. The device must outlive the claim.
  static Result<JobClaim> next(io::Device& device, const ClaimNames& names);
  // One that this job has made.
  JobClaim(io::Device& device, const ClaimNames& names, uint32_t number)
      : device_(&device), directory_(names.directory), number_(number), next_(names.path(number + 1)) {}

  uint32_t number() const { return number_; }
  // OK, or kAborted: a later job has claimed the directory.
  Status fence() const;

 private:
  io::Device* device_;
  std::string directory_;
  uint32_t number_;
  std::string next_;  // path of the next claim: made once, because each commit asks for it
};

}  // namespace swale::store
