// LostAttributes: attributes of files whose bytes a drain has brought to the backing, where the file system
// cannot keep them (ext4: some 4 KiB of each file).
//
// Threads: any. Memory: some 200 bytes for each.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "meta/index/types.h"

namespace swale::fs {

class LostAttributes {
 public:
  struct Lost {
    meta::FileId file;
    std::string name;
    std::string why;
  };

  // False: it was known.
  bool add(Lost lost) {
    const MutexLock lock(mutex_);
    return lost_.insert_or_assign({lost.file, std::move(lost.name)}, std::move(lost.why)).second;
  }
  void remove(const Lost& lost) {
    const MutexLock lock(mutex_);
    lost_.erase({lost.file, lost.name});
  }
  // The file is drained anew.
  void forget(const meta::FileId& file) {
    const MutexLock lock(mutex_);
    std::erase_if(lost_, [&](const auto& each) { return each.first.first == file; });
  }
  // Of one of the file's; empty: there is none.
  std::string why(const meta::FileId& file) const {
    const MutexLock lock(mutex_);
    const auto at = lost_.lower_bound({file, ""});
    return at == lost_.end() || at->first.first != file ? std::string() : at->second;
  }
  std::vector<Lost> all() const {
    const MutexLock lock(mutex_);
    std::vector<Lost> all;
    for (const auto& [key, why] : lost_) all.push_back({key.first, key.second, why});
    return all;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return lost_.size();
  }

 private:
  mutable Mutex mutex_;
  std::map<std::pair<meta::FileId, std::string>, std::string> lost_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
