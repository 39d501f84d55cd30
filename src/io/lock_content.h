// LockContent: the content of a lock file: its holder, the job it is for, its start time, and the lease's
// duration.
//
// Format: docs/formats/manifest.md, "swale.lock". One JSON object and a line feed. Its first member is the
// counter, always 20 digits at kCounterOffset, so that a renewal overwrites only these bytes.
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
inline constexpr uint64_t kCounterOffset = 12;  // after {"counter":"
inline constexpr Nanos kLeaseMin = milliseconds(50);
inline constexpr Nanos kLeaseMax = seconds(3600);

struct LockContent {
  uint64_t counter = 0;    // how often the holder has renewed the lease
  ProcessIdentity holder;  // the process
  std::string allocation;  // the batch scheduler's, "slurm-70123"; "" without one
  std::string job;         // what the lock is for; for a writer's job, 16 hex digits
  std::string nonce;       // 16 hex digits that no other lock has
  std::string since;       // UTC
  Nanos lease = seconds(60);

  // The counter as written in the file.
  static std::string counter_text(uint64_t counter);
  // At most kLockBytesMax bytes.
  std::string encode() const;
  // kCorruption if it is not a JSON object: no version of Swale wrote all of it, so no process holds it.
  // kUnsupported if the object lacks some of our members or has them with other types.
  static Result<LockContent> decode(std::string_view bytes);

  // "process 17 on host n3 (slurm-70123)"
  std::string who() const;
};

// A lock file as it was read.
struct FoundLock {
  std::string bytes;  // at most kLockBytesMax + 1, which means that the file is too long
  Result<LockContent> content = Status(Code::kCorruption, Scope::kFile, "not read");

  // Identifies this lock among all that ever exist at its path: the nonce, or a hash if it has none.
  std::string token() const;
  // What it is, for messages: "the lock of ...", or "a file that is no lock (...)".
  std::string text() const;
  // Whether it is the same lock, perhaps renewed.
  bool same_lock(const FoundLock& other) const { return token() == other.token(); }
};

// kNotFound if there is no file.
Result<FoundLock> read_lock(Device& device, const std::string& path);

std::string utc_now();

}  // namespace swale::io
