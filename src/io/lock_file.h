// LockFile: a file that says which process may write somewhere: a lease that its holder renews while it
// lives.
//
//   acquire ─► no file: make it ─────────────────────────────────────────► held ─► renewed ─► release:
//   removed
//              a file: certainly dead ─► take over ──────────────────────────┘
//                      certainly alive, or renewed while we watch ─► kBusy
//                      neither: watch for one lease ─► not renewed ─► take over
//
// Clocks of hosts are never compared: the taker watches, on its own clock, whether the counter in the file
// changes. A holder is certainly dead if it is a process of this host that has ended, or ran before the
// host's last boot; if it is this process, which has no such lock; if the witness says so; or if the file is
// no lock. It is certainly alive if it is a process of this host that exists and is not stopped.
// docs/design/lock.md: arithmetic and rejected options.
//
// Invariants: (1) A lock appears whole: it is written and synced under another name and then renamed to its
// path.
// (2) A renewal writes through the descriptor that created the file, so it never touches a lock that was
//     removed or
// replaced. (3) A takeover needs the claim PATH.TOKEN.claim of the old lock, and the claim becomes the lock
// by one rename. The claim is a lock itself: if its maker has died, it is taken over in the same way, so no
// crash leaves a file that a person must remove. (4) Nothing protects a holder that sleeps longer than its
// lease: it must call check() before and after the work that the lock protects.
//
// Threads: any number of threads and processes may call acquire. One thread at a time uses a LockFile, except
// check and lost, which any thread may call until release begins. Renewals: one LeaseKeeper thread for all
// locks of a process.
// Errors: kBusy names the holder and the remedy; the device's failures are passed on.
// Limits: acquire waits at most LeaseOptions::wait from its first look.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/contain.h"
#include "base/patience.h"
#include "base/process_identity.h"
#include "base/status.h"
#include "io/device.h"
#include "io/lock_content.h"

namespace swale::io {

struct LeaseOptions {
  Nanos lease = seconds(60);  // a lock not renewed for so long may be taken over; renewed every lease / 6
  Nanos wait = seconds(90);   // how long acquire watches whether a lock is renewed; 0: one look
};

struct LockRequest {
  std::string job;  // for people and for repair; see LockContent
  LeaseOptions lease = {};
  // Says why the holder of this lock cannot be alive, from other knowledge; "" if it may be. May be empty.
  std::function<std::string(const LockContent&)> witness = {};
  std::string force = {};  // FoundLock::token of a lock that a person declares dead

  // For simulations: the requesting process (none: this one), a nonce (0: random), the clock and how to wait
  // on it.
  enum class Renewal { kByKeeper, kByCaller };
  Renewal renewal = Renewal::kByKeeper;
  std::optional<ProcessIdentity> self = {};
  uint64_t nonce = 0;
  const Clock* clock = &system_clock();
  std::function<void(Nanos)> sleep = {};  // empty: this thread sleeps
};

class HeldLock;

class LockFile {
 public:
  // The device and the request's clock must outlive the lock.
  static Result<LockFile> acquire(Device& device, const std::string& path, const LockRequest& request);

  LockFile(LockFile&&) noexcept = default;
  LockFile& operator=(LockFile&& other) noexcept;
  ~LockFile() {
    static_cast<void>(contain([this] { release(); }));
  }

  // Checks that the file at the path is still this lock: one open and one read. kAborted says what has
  // happened to it (removed, taken over by which process); later calls return the same. Other failures are
  // the device's.
  Status check();
  // Whether a check or a renewal has found the lock lost so far. Does not access the device.
  bool lost() const;

  // Renews now; returns the time of the next renewal (kForever: the lock is lost or released). The keeper
  // calls it unless Renewal::kByCaller.
  Nanos renew(Nanos now);

  const LockContent& content() const;

  // Removes the file if it is still this lock. A failure is only logged: the next taker finds a dead process.
  void release();

 private:
  friend class LockTaker;
  explicit LockFile(std::shared_ptr<HeldLock> held) : held_(std::move(held)) {}

  std::shared_ptr<HeldLock> held_;  // null: released or moved away
};

// The state of a lock as one look shows it.
struct LockVerdict {
  enum class Kind { kDead, kAlive, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string why;  // kDead: "the lock of process 7 on host n: the process is gone"; kAlive: "is alive"
};
LockVerdict judge_lock(const FoundLock& found);

}  // namespace swale::io
