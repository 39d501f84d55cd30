// LeaseKeeper: the one thread of a process that renews all its leases, also while the application computes
// for hours.
//
// The thread starts with the first lease and ends with the last one; between renewals it sleeps in the
// kernel. Renewals run one after the other: storage that hangs also delays the leases of this process's other
// directories.
//
// Threads: any thread may call add and remove.
#pragma once

#include <sys/types.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace swale::io {

class Lease {
 public:
  virtual ~Lease() = default;
  // The keeper's thread calls it. Returns the time of the next renewal; kForever: no more.
  virtual Nanos renew(Nanos now) = 0;
};

class LeaseKeeper {
 public:
  static LeaseKeeper& of_this_process();

  LeaseKeeper();
  ~LeaseKeeper();

  // Renews the lease for the first time at `first`. kResourceExhausted if no thread can be started.
  Status add(std::shared_ptr<Lease> lease, Nanos first);
  // A renewal of this lease that is running may still complete after remove, unless it was the last lease.
  void remove(const Lease* lease);

  bool running();  // whether there is a thread

 private:
  struct Entry {
    std::shared_ptr<Lease> lease;
    Nanos next;
  };

  void run();

  const pid_t process_;
  Mutex lifecycle_mutex_;  // taken first
  std::thread thread_ GUARDED_BY(lifecycle_mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::io
