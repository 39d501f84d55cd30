// LockContent: what a lock file says: who holds it, for whom, since when, for how long without a renewal.
//
// Format: docs/formats/manifest.md, "swale.lock". One JSON object and a line feed. Its first member is the counter,
// always 20 digits at kCounterOffset, so that a renewal overwrites these bytes and nothing else.
// Limits: kLockBytesMax, in every version; a longer file is no lock.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/process_identity.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::io {

inline constexpr size_t kLockBytesMax = 4096;
inline constexpr uint64_t kCounterOffset = 12;  // behind {"counter":"
inline constexpr Nanos kLeaseMin = milliseconds(50);
inline constexpr Nanos kLeaseMax = seconds(3600);

struct LockContent {
  uint64_t counter = 0;    // how often the holder has renewed the lease
  ProcessIdentity holder;  // the process
  std::string allocation;  // of the batch scheduler, "slurm-70123"; "" without one
  std::string job;         // what the lock is for; 16 hex digits of a writer's job
  std::string nonce;       // 16 hex digits that no other lock has
  std::string since;       // UTC
  Nanos lease = seconds(60);

  // The counter as it stands in the file.
  static std::string counter_text(uint64_t counter);
  // At most kLockBytesMax bytes.
  std::string encode() const;
  // kCorruption if it is no JSON object, so that no version of Swale has left it whole: nobody holds it.
  // kUnsupported for an object that lacks members of ours or has them with other types.
  static Result<LockContent> decode(std::string_view bytes);

  // "process 17 on host n3 (slurm-70123)"
  std::string who() const;
};

// A lock file as it was found.
struct FoundLock {
  std::string bytes;  // at most kLockBytesMax + 1: one more than that says that there are more
  Result<LockContent> content = Status(Code::kCorruption, Scope::kFile, "not read");

  // Names this lock among all that ever stand at its path: the nonce, or a hash where there is none.
  std::string token() const;
  // The same holder's, though perhaps renewed.
  bool same_lock(const FoundLock& other) const { return token() == other.token(); }
};

// kNotFound if there is no file.
Result<FoundLock> read_lock(Device& device, const std::string& path);

std::string utc_now();

}  // namespace swale::io
