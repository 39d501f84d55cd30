// EntryCache: the entries that a node remembers: those of directories only, whose rename or removal reaches
// every node before it happens (NamesCore). So what is here is true, and a path is walked without a message.
//
// An answer that was asked for before its entry was to be forgotten may be older than that: it is not noted.
//
// Threads: any. Errors: std::bad_alloc; then the entry is forgotten, or not noted.
// Limits: entries_max; those noted first go first. An answer that crosses more than kForgottenMax removals is
// not noted.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "meta/names/tree.h"

namespace swale::meta {

class EntryCache {
 public:
  static constexpr size_t kForgottenMax = 1024;
  explicit EntryCache(size_t entries_max = 1 << 16) : entries_max_(entries_max) {}

  std::optional<DirEntry> find(const EntryKey& key) const {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    return DirEntry{found->second.directory, NodeType::kDirectory};
  }

  // The present moment: before the question is sent.
  uint64_t now() const {
    const MutexLock lock(mutex_);
    return now_;
  }
  void note(const EntryKey& key, const FileId& directory, uint64_t asked) {
    const MutexLock lock(mutex_);
    if (asked < since_) return;
    for (const auto& [when, forgotten] : forgotten_) {
      if (when > asked && forgotten == key) return;
    }
    order_.emplace(++noted_, key);
    const auto [entry, fresh] = entries_.try_emplace(key);
    if (!fresh) order_.erase(entry->second.order);
    entry->second = {directory, noted_};
    if (entries_.size() <= entries_max_) return;
    entries_.erase(order_.begin()->second);
    order_.erase(order_.begin());
  }

  void forget(const EntryKey& key) {
    const MutexLock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      order_.erase(found->second.order);
      entries_.erase(found);
    }
    forgotten_.emplace_back(++now_, key);
    if (forgotten_.size() <= kForgottenMax) return;
    since_ = forgotten_.front().first;
    forgotten_.pop_front();
  }
  void clear() {
    const MutexLock lock(mutex_);
    entries_.clear();
    order_.clear();
    forgotten_.clear();
    since_ = ++now_;
  }

 private:
  struct Entry {
    FileId directory = {};
    uint64_t order = 0;
  };

  const size_t entries_max_;
  mutable Mutex mutex_;
  std::map<EntryKey, Entry> entries_ GUARDED_BY(mutex_);
  std::map<uint64_t, EntryKey> order_ GUARDED_BY(mutex_);  // in which they were noted
  uint64_t noted_ GUARDED_BY(mutex_) = 0;
  uint64_t now_ GUARDED_BY(mutex_) = 0;    // counts what was to be forgotten
  uint64_t since_ GUARDED_BY(mutex_) = 0;  // what was asked for before it is not noted
  std::deque<std::pair<uint64_t, EntryKey>> forgotten_ GUARDED_BY(mutex_);
};

}  // namespace swale::meta
