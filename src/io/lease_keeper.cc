#include "io/lease_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace swale::io {
namespace {

constexpr Nanos kRetryAfter = seconds(1);

// The boundary of the keeper's thread. The only exception in a renewal is a failed allocation; there may be
// memory later.
Nanos renew(Lease& lease, Nanos now) noexcept {
  try {
    return lease.renew(now);
  } catch (...) {
    return now + kRetryAfter;
  }
}

}  // namespace

LeaseKeeper::LeaseKeeper() : process_(::getpid()) {}

LeaseKeeper& LeaseKeeper::of_this_process() {
  static Mutex mutex;
  // A child made by fork that calls exit leaves its parent's: the condition variable waits for a thread that
  // the child does not have.
  constexpr auto remove = [](LeaseKeeper* each) {
    if (each->process_ == ::getpid()) delete each;
  };
  static std::unique_ptr<LeaseKeeper, decltype(remove)> keeper;
  const MutexLock lock(mutex);
  if (!keeper || keeper->process_ != ::getpid()) {
    static_cast<void>(
        keeper.release());  // of a child's parent: without its thread, and a mutex may stay locked
    keeper.reset(new LeaseKeeper());
  }
  return *keeper;
}

LeaseKeeper::~LeaseKeeper() {
  if (process_ != ::getpid()) {  // a child made by fork has this object, but not the thread
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status LeaseKeeper::add(std::shared_ptr<Lease> lease, Nanos first) {
  const MutexLock lifecycle(lifecycle_mutex_);
  const Lease* const added = lease.get();
  {
    const MutexLock lock(mutex_);
    stopping_ = false;
    entries_.push_back({std::move(lease), first});
  }
  changed_.notify_all();
  if (thread_.joinable()) return {};
  Status started = start_thread(&thread_, "the thread that renews leases", [this] { run(); });
  if (!started.ok()) {
    const MutexLock lock(mutex_);
    std::erase_if(entries_, [added](const Entry& entry) { return entry.lease.get() == added; });
  }
  return started;
}

void LeaseKeeper::remove(const Lease* lease) {
  const MutexLock lifecycle(lifecycle_mutex_);
  {
    const MutexLock lock(mutex_);
    std::erase_if(entries_, [lease](const Entry& entry) { return entry.lease.get() == lease; });
    if (!entries_.empty()) return;
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LeaseKeeper::running() {
  const MutexLock lifecycle(lifecycle_mutex_);
  return thread_.joinable();
}

void LeaseKeeper::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const auto soonest = std::min_element(entries_.begin(), entries_.end(),
                                          [](const Entry& a, const Entry& b) { return a.next < b.next; });
    if (soonest == entries_.end() || soonest->next == kForever) {
      changed_.wait(lock);
      continue;
    }
    const Nanos now = system_clock().now();
    if (soonest->next > now) {
      changed_.wait_for(lock, soonest->next - now);
      continue;
    }
    const std::shared_ptr<Lease> lease = soonest->lease;
    lock.unlock();
    const Nanos next = renew(*lease, now);
    lock.lock();
    for (Entry& entry : entries_) {
      if (entry.lease == lease) entry.next = next;
    }
  }
}

}  // namespace swale::io
