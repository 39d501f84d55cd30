// WriterLock: one job writes to a massive directory at a time. DIR/swale.lock says which: host, process, since when.
//
// Rank 0 of the job holds it from opening to closing. A lock whose process is dead for certain (of this host and
// gone, of this host before its last boot, or this process without an open writer) is taken over with a log message;
// any other is kBusy, because a process of another host cannot be asked. A lock appears whole, by a link to a file that
// is written and synced already; so one that is empty or torn belongs to nobody, and is taken over too. Takeovers are
// serialised by a second file, so that two processes which find the same dead lock do not both get it.
//
// Threads: acquire by any number of threads and processes; a lock is used by one thread at a time.
// Format: docs/formats/manifest.md, "swale.lock". It is advice among Swale's writers; readers ignore it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "io/device.h"

namespace swale::imd {

inline constexpr char kLockName[] = "swale.lock";
inline constexpr char kTakeoverName[] = "swale.lock.takeover";

std::string lock_path(const std::string& directory);

class WriterLock {
 public:
  // kBusy names the holder and what to do. The device must outlive the lock.
  static Result<WriterLock> acquire(io::Device& device, const std::string& directory, uint64_t job_id);

  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&& other) noexcept;
  ~WriterLock() { release(); }

  // Removes the file if it is still ours. Failures are logged: the next writer finds a dead process and takes over.
  void release();

 private:
  WriterLock(io::Device& device, std::string path, std::string content, uint64_t job_id);

  io::Device* device_;  // nullptr: released
  std::string path_;
  std::string content_;
  uint64_t job_id_;
};

}  // namespace swale::imd
