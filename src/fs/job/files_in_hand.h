// FilesInHand: the files and directories of which somebody changes, on the backing and in the names, what
// they have beside their bytes: a program, or the drain that gives them their place there. One after the
// other: else the backing and the names would end with the changes of different ones.
//
//   const FilesInHand::Hold hold(in_hand_, {&id, 1});  // without the mutex
//   in_hand_.settle(ids);                              // with it
//
// Threads: any; the mutex is that of JobFs. Invariant: of an id there is one Hold at a time. A backing that
// hangs in one stops who wants the same file.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "fs/job/request_lock.h"
#include "meta/index/types.h"

namespace swale::fs {

class FilesInHand {
 public:
  using Ids = std::span<const meta::FileId>;

  FilesInHand(Mutex& mutex, Requests& requests) : mutex_(mutex), requests_(requests) {}

  // With the mutex, which it gives up meanwhile: waits until none of them is in hand.
  void settle(Ids ids) NO_THREAD_SAFETY_ANALYSIS {
    while (std::any_of(ids.begin(), ids.end(), [this](const auto& id) NO_THREAD_SAFETY_ANALYSIS {
      return std::find(held_.begin(), held_.end(), id) != held_.end();
    }))
      free_.wait(mutex_);
  }

  // With the mutex: how many there have been.
  uint64_t holds() const NO_THREAD_SAFETY_ANALYSIS { return holds_; }

  class Hold {
   public:
    Hold(FilesInHand& files, Ids ids)
        : files_(files), ids_(ids.begin(), ids.end()), number_(files_.take(ids_)) {}
    ~Hold() { files_.give_back(ids_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    uint64_t number() const { return number_; }

   private:
    FilesInHand& files_;
    const std::vector<meta::FileId> ids_;
    const uint64_t number_;
  };

 private:
  uint64_t take(Ids ids) {
    const RequestLock lock(mutex_, requests_);
    settle(ids);
    held_.insert(held_.end(), ids.begin(), ids.end());
    return ++holds_;
  }
  void give_back(Ids ids) {
    const RequestLock lock(mutex_, requests_);
    std::erase_if(held_, [&](const auto& id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); });
    free_.notify_all();
  }

  Mutex& mutex_;
  Requests& requests_;
  CondVar free_;
  std::vector<meta::FileId> held_ GUARDED_BY(mutex_);
  uint64_t holds_ GUARDED_BY(mutex_) = 0;
};

}  // namespace swale::fs
