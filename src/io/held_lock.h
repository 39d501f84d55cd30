// HeldLock: a lock that this process holds: renews it, checks it and finally removes it. Internal to
// LockFile.
//
// Threads: all calls are thread-safe, under one mutex.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "io/device.h"
#include "io/lease_keeper.h"
#include "io/lock_content.h"

#include "base/mutex.h"

namespace swale::io {

// Lists a nonce among the locks that this process holds or is about to make, until the result is destroyed. A
// lock file that names this process but is not listed is a leftover.
std::shared_ptr<void> list_nonce(const std::string& nonce);
bool is_listed(const std::string& nonce);

class HeldLock final : public Lease {
 public:
  HeldLock(Device& device, std::string path, LockContent content, std::unique_ptr<File> file,
           std::shared_ptr<void> listed);

  Nanos renew(Nanos now) override;
  Status check();
  void release();

  bool lost() const { return lost_; }
  const LockContent& content() const { return content_; }
  Nanos renewal_interval() const { return content_.lease / kRenewalsPerLease; }

 private:
  static constexpr int kRenewalsPerLease = 6;

  Status check_locked() REQUIRES(mutex_);
  Status write_counter() REQUIRES(mutex_);

  const std::string path_;
  const LockContent content_;  // with the counter's initial value

  Mutex mutex_;
  Device* device_ GUARDED_BY(mutex_);  // null: released
  std::unique_ptr<File> file_ GUARDED_BY(mutex_);
  std::shared_ptr<void> listed_ GUARDED_BY(mutex_);
  uint64_t counter_ GUARDED_BY(mutex_) = 0;
  bool failing_ GUARDED_BY(mutex_) = false;  // the last renewal failed, and was logged
  Status why_lost_ GUARDED_BY(mutex_);
  std::atomic<bool> lost_{false};
};

}  // namespace swale::io
