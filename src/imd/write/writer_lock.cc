#include "imd/write/writer_lock.h"

#include <utility>

namespace swale::imd {

std::string lock_path(const std::string& directory) { return fmt::format("{}/{}", directory, kLockName); }

Result<WriterLock> acquire_writer_lock(io::Device& device, const std::string& directory, uint64_t job_id,
                                       const io::LeaseOptions& lease, const LockWitness& witness) {
  io::LockRequest request;
  request.job = lock_job(job_id);
  request.lease = lease;
  request.witness = witness;
  return acquire_writer_lock(device, directory, request);
}

Result<WriterLock> acquire_writer_lock(io::Device& device, const std::string& directory,
                                       const io::LockRequest& request) {
  return WriterLock::acquire(device, lock_path(directory), request);
}

std::string lock_job(uint64_t job_id) { return fmt::format("{:016x}", job_id); }

Result<LockWitness> ask_ranks_about_lock(const net::Ranks& ranks, io::Device& device,
                                         const std::string& directory) {
  if (ranks.size == 1) return LockWitness();
  std::string mine;
  if (ranks.rank == 0) {
    // A lock that cannot be read is for acquire to report.
    const Result<io::FoundLock> found = io::read_lock(device, lock_path(directory));
    if (found.ok() && found->content.ok()) mine = found->bytes;
  }
  SWALE_ASSIGN_OR_RETURN(const net::Word told, net::first_word(ranks, mine));
  if (told.rank < 0) return LockWitness();
  const Result<io::LockContent> lock = io::LockContent::decode(told.text);
  const ProcessReport report = lock.ok() ? look_for(lock->holder) : ProcessReport();
  SWALE_ASSIGN_OR_RETURN(const net::Word reason,
                         net::first_word(ranks, report.state == ProcessState::kGone ? report.why : ""));
  if (!lock.ok() || ranks.rank != 0 || reason.rank < 0) return LockWitness();
  std::string why = fmt::format("rank {}, on that host, says that {}", reason.rank, reason.text);
  return LockWitness([nonce = lock->nonce, why = std::move(why)](const io::LockContent& content) {
    return content.nonce == nonce ? why : std::string();
  });
}

}  // namespace swale::imd
