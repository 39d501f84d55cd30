// What a benchmark needs to drive the library's inside: a job among forked ranks, a Writer on a device that
// is as slow as is asked for. The C interface has neither (it is not for benchmarks to add options to it).
//
// Threads: free functions. Errors: die().
#pragma once

#include <memory>

#include "base/status.h"
#include "bench/check_status.h"
#include "io/device.h"
#include "io/limited_device.h"
#include "io/posix_device.h"
#include "net/job/job.h"

namespace swale::bench {

// Call it before the ranks are forked.
void register_network();
// In a rank of run_ranks.
std::unique_ptr<net::Job> open_job(int ranks, const net::JobOptions& job = {});

// The storage of one rank: this machine's, but no faster than `limit` bytes/s (0: no limit).
class RankStorage {
 public:
  explicit RankStorage(uint64_t limit) : limited_(posix_, limit == 0 ? 1 : limit), is_limited_(limit != 0) {}
  io::Device& device() { return is_limited_ ? static_cast<io::Device&>(limited_) : posix_; }

 private:
  io::PosixDevice posix_;
  io::LimitedDevice limited_;
  const bool is_limited_;
};

}  // namespace swale::bench
