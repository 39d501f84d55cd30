// MemoryProbe: finds out whether all ranks of a job see the same shared memory, before a fabric relies on it.
//
// One machine does not mean one shared memory: containers share a kernel and its boot id, and each may have a
// /dev/shm, process numbers and System V names of its own. So rank 0 makes a segment with a random content,
// as the fabric makes its own: in /dev/shm, mode 0600, without a name. The other ranks open it as the fabric
// will open segments, through /proc/PID/fd, and compare what they find with what rank 0 has announced.
//
// The announcement does not say the content, only a hash of it. It guards against mistakes: a process number
// that means another process here. What the look opens belongs to this user and is a regular file of the
// right size.
//
// Threads: values; each used by one thread. Limits: rank 0 holds one descriptor until the probe is destroyed.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace swale::net {

class MemoryProbe {
 public:
  // What rank 0 announces. All zeros: it could make no segment.
  struct Offer {
    uint64_t where = 0;  // process number << 32 | descriptor
    uint64_t what = 0;   // hash of the content and of the namespace of System V names
  };

  // On rank 0. Never fails: the offer then is empty, and every look says no.
  static MemoryProbe make();
  ~MemoryProbe();
  MemoryProbe(MemoryProbe&& other) noexcept;
  MemoryProbe& operator=(MemoryProbe&&) = delete;

  const Offer& offer() const { return offer_; }

 private:
  MemoryProbe() = default;
  int fd_ = -1;
  Offer offer_;
};

// On any rank, while rank 0's probe lives. A failure says why this process does not share memory with rank 0.
Status look_for_memory(const MemoryProbe::Offer& offer);

}  // namespace swale::net
