// Generations: how a massive directory's manifest is found, replaced and fenced.
//
// Each job that opens the directory for writing claims the next number by making the folder jobs/NNNN, which
// only one can. It then writes a generation there: jobs/NNNN/epochs, a copy of the epoch log that it
// continues, and jobs/NNNN/manifest.json, which makes the generation valid. swale.json is a copy of the
// newest manifest.json for readers and people. The highest number with a manifest.json is the truth; a
// swale.json that is older, missing or damaged is only passed over.
//
// The claim fences the jobs before it. A committer appends its record, syncs it, and then looks whether the
// next number is claimed (JobFence); a successor claims first and copies the epoch log afterwards. So a
// commit that was answered OK is in the successor's copy, whatever the order in which the two run
// (docs/design/generations.md has the argument).
//
// Threads: free functions; JobFence may be used by one thread at a time.
// Errors: those of the device; kCorruption that names the file; kNotFound where there is no massive
// directory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "imd/format/epoch_log.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "io/lock_file.h"
#include "store/job_claim.h"

namespace swale::imd {

// The newest manifest with the epochs that are committed at this moment. Logs a warning if swale.json is
// damaged and another copy was taken.
Result<Manifest> load_manifest(io::Device& device, const std::string& directory);

// What is wrong with the documents of `manifest`, the newest: copies that are damaged or missing. A
// swale.json that is older is no problem: readers find the newest.
std::vector<Status> check_documents(io::Device& device, const std::string& directory,
                                    const Manifest& manifest);

// Whether the directory has a manifest, of any generation.
Result<bool> has_manifest(io::Device& device, const std::string& directory);

// Makes generation 0, without jobs and epochs, of a directory that has no manifest. What another maker that
// was killed has left of it is removed. Requires the lock.
Status make_first_generation(io::Device& device, const std::string& directory, Manifest manifest);

// The generation that `job` makes when it continues `base`.
Manifest next_generation(Manifest base, JobEntry job);

// How the numbers of jobs are claimed.
store::ClaimNames job_claims(const std::string& directory);

// Claims the next number, durably. From here on no job before it can commit. kBusy if others claim at the
// same time.
Result<uint32_t> claim_job(io::Device& device, const std::string& directory);

// Makes `manifest`, with `generation` and `continues` set, the newest generation, durably. Returns its epoch
// log, to be appended to. Two generations are kept, this one and the one it continues: the documents of
// `superseded` are removed (Manifest::continues of the one it continues; nothing if that is the same).
Result<EpochLog> write_generation(io::Device& device, const std::string& directory, const Manifest& manifest,
                                  uint32_t superseded);

// Replaces the document of a generation that this job has written; the epoch log stays.
Status rewrite_document(io::Device& device, const std::string& directory, const Manifest& manifest);

// Says whether a job may still commit: nobody has claimed a number after its own, and it still holds the
// lock.
class JobFence {
 public:
  // `lock` may be null (a job without a lock: the simulator); both must outlive the fence.
  JobFence(io::Device& device, const std::string& directory, uint32_t job, io::LockFile* lock);

  // OK, or kAborted that names who has taken over.
  Status check() const;

 private:
  store::JobClaim claim_;
  io::LockFile* lock_;
};

}  // namespace swale::imd
