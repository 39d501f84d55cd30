// LockFile: a file that says which process may write somewhere, as a lease that its holder renews while it lives.
//
//   acquire ─► no file: make it ─────────────────────────────────────────► held ─► renewed ─► release: removed
//              a file: dead for certain ─► take over ────────────────────────┘
//                      alive for certain, or renewed while we look ─► kBusy
//                      neither: look for one lease ─► not renewed ─► take over
//
// Clocks of hosts are never compared: the taker sees, on its own clock, whether the counter in the file moves. Dead for
// certain: a process of this host that is gone or has ended; one of this host before its last boot; this process
// without such a lock; what the witness says; a file that is no lock. Alive for certain: a process of this host that
// exists and is not stopped. docs/design/lock.md has the arithmetic and the rejected ways.
//
// Invariants: (1) A lock appears whole: it is written and synced beside its place and then given its name.
// (2) A renewal writes through the descriptor that made the file, so a lock that was removed or replaced is never
// touched. (3) A takeover needs the claim PATH.TOKEN.claim of the old lock, and the claim becomes the lock by one
// rename. The claim is a lock itself: one whose maker has died is taken over in the same way, so no crash leaves a
// file that needs a person. (4) Nothing protects a holder that sleeps longer than its lease: it asks check() before
// and after what the lock protects.
//
// Threads: acquire by any number of threads and processes; a LockFile is used by one thread at a time, except check and
// lost, which any thread may call until release begins. Renewals: one LeaseKeeper thread for all locks of a process.
// Errors: kBusy names the holder and what to do; the device's failures as they are.
// Limits: acquire waits LeaseOptions::wait, counted from its first look, and never longer.
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
  Nanos lease = seconds(60);  // a lock that was not renewed for so long is given up; renewed every lease / 6
  Nanos wait = seconds(90);   // how long acquire looks whether a lock is renewed; 0: one look
};

struct LockRequest {
  std::string job;  // for people and for repair; see LockContent
  LeaseOptions lease = {};
  // What else is known: why the holder of this lock cannot be alive; "" if it may be. May be empty.
  std::function<std::string(const LockContent&)> witness = {};
  std::string force = {};  // FoundLock::token of a lock of which a person says that nobody holds it

  // For simulations: the process that asks (none: this one), a nonce (0: drawn), the clock and how to wait on it.
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

  // Whether the file at the path is still this lock: one open and one read. kAborted says what has happened to it
  // (removed, taken over by whom), and stays the answer. Other failures are the device's.
  Status check();
  // What check or a renewal has noticed so far, without asking the device.
  bool lost() const;

  // Renews now; returns when to renew next (kForever: the lock is lost or released). The keeper calls it unless
  // Renewal::kByCaller.
  Nanos renew(Nanos now);

  const LockContent& content() const;

  // Removes the file if it is still this lock. Failures are logged: the next taker finds a dead process.
  void release();

 private:
  friend class LockTaker;
  explicit LockFile(std::shared_ptr<HeldLock> held) : held_(std::move(held)) {}

  std::shared_ptr<HeldLock> held_;  // null: released or moved away
};

// What can be said about a lock at one look.
struct LockVerdict {
  enum class Kind { kDead, kAlive, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string why;  // kDead: "the lock of process 7 on host n: the process is gone"; kAlive: "is alive"
};
LockVerdict judge_lock(const FoundLock& found);

}  // namespace swale::io
