// KeptAside: files whose backing others have changed, so that drains have put what the job has written beside
// them, as NAME.swale-JOB. The job's end says so, whenever a drain found it.
//
// Threads: any. Memory: kNamedMax paths.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace swale::fs {

class KeptAside {
 public:
  static constexpr size_t kNamedMax = 16;

  void add(std::string path) {
    ++count_;
    const MutexLock lock(mutex_);
    if (paths_.size() < kNamedMax || paths_.contains(path))
      paths_.insert(std::move(path));
    else
      more_ = true;
  }
  uint64_t count() const { return count_.load(); }
  // OK: there are none.
  Status failure(const std::string& job) const {
    const MutexLock lock(mutex_);
    if (paths_.empty()) return {};
    const bool one = paths_.size() == 1 && !more_;
    return error(Code::kIoError, Scope::kFile,
                 "{}{}: others have changed {}; what the job has written is beside {}, as .swale-{}",
                 fmt::join(paths_, ", "), more_ ? " and more" : "", one ? "it" : "them", one ? "it" : "each",
                 job);
  }

 private:
  std::atomic<uint64_t> count_ = 0;
  mutable Mutex mutex_;
  std::set<std::string> paths_ GUARDED_BY(mutex_);
  bool more_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::fs
