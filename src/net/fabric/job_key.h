// JobKey: 256 bits that only the ranks of one job have. Rank 0 draws them; they travel as the job's secret
// does (by the rendezvous directory, or the caller's communicator), and unlike it never stand in a frame or
// an address. The transport `tls` proves with them that a peer is of the job.
//
// Threads: a value. Its memory is overwritten when it ends.
#pragma once

#include <strings.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/status.h"

namespace swale::net {

struct JobKey {
  std::array<unsigned char, 32> bytes{};

  JobKey() = default;
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey() { ::explicit_bzero(bytes.data(), bytes.size()); }

  // False: nobody has drawn it, so it is no key.
  bool drawn() const {
    return std::any_of(bytes.begin(), bytes.end(), [](unsigned char each) { return each != 0; });
  }
  static Result<JobKey> draw() {
    JobKey key;
    if (::getrandom(key.bytes.data(), key.bytes.size(), 0) != static_cast<ssize_t>(key.bytes.size()))
      return errno_status(errno, "getrandom");
    return key;
  }
};

}  // namespace swale::net
