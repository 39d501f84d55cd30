// WriterLock: one job writes to a massive directory at a time. DIR/swale.lock says which: an io::LockFile
// that rank 0 holds from opening to closing. io/lock_file.h has its promises, docs/design/lock.md the
// reasons.
//
// Threads: as io::LockFile says.
// Format: docs/formats/manifest.md, "swale.lock". It is advice among Swale's writers; readers ignore it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "io/device.h"
#include "io/lock_file.h"
#include "net/job/agree.h"

namespace swale::imd {

inline constexpr char kLockName[] = "swale.lock";

std::string lock_path(const std::string& directory);

using WriterLock = io::LockFile;
using LockWitness = std::function<std::string(const io::LockContent&)>;

// kBusy names the holder and what to do. The device must outlive the lock.
Result<WriterLock> acquire_writer_lock(io::Device& device, const std::string& directory, uint64_t job_id,
                                       const io::LeaseOptions& lease = {}, const LockWitness& witness = {});
// The same, for `request.job` = lock_job(job_id).
Result<WriterLock> acquire_writer_lock(io::Device& device, const std::string& directory,
                                       const io::LockRequest& request);
std::string lock_job(uint64_t job_id);

// Collective, before rank 0 acquires: if a lock is there, the ranks on its holder's host look for the
// process. The witness lets rank 0 take the lock of a process that one of them knows to be gone at once, also
// from another host: so a job that is started again in its old allocation does not wait for the lease.
Result<LockWitness> ask_ranks_about_lock(const net::Ranks& ranks, io::Device& device,
                                         const std::string& directory);

}  // namespace swale::imd
