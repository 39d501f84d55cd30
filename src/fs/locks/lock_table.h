// LockTable: who has which bytes of one file locked. Locks of ranges (fcntl, OFD) and of the whole file
// (flock) are kept apart, as Linux does. What an owner locks takes the place of what it had locked there: so
// locks are split, joined, made stronger or weaker.
//
// Threads: one at a time. A call that throws std::bad_alloc may have changed a part of the owner's ranges,
// and no others'.
// Invariants: no two owners have locks of one kind in each other's way: callers ask in_the_way() before
// set().
// Memory: about 80 bytes a range.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "fs/file_locks.h"
#include "fs/share/range_map.h"
#include "fs/share/share_messages.h"

namespace swale::fs {

struct LockOwner {
  NodeId node = 0;
  uint64_t id = 0;  // the kernel's number there
  friend auto operator<=>(const LockOwner&, const LockOwner&) = default;
};

struct OwnedLock {
  NodeId node = 0;
  FileLock lock = {};
  LockOwner owner() const { return {node, lock.owner}; }
  friend bool operator==(const OwnedLock&, const OwnedLock&) = default;
};

class LockTable {
 public:
  // One of the locks that exclude the wanted one, whole.
  std::optional<OwnedLock> in_the_way(const OwnedLock& wanted) const;
  std::set<LockOwner> owners_in_the_way(const OwnedLock& wanted) const;
  // kNone unlocks.
  void set(const OwnedLock& wanted);
  void end(const LockOwner& owner, LockKind kind);
  void end_node(NodeId node);

  bool empty() const { return ranges_.empty() && whole_.empty(); }
  size_t count() const;            // of ranges
  std::set<NodeId> nodes() const;  // that have locks
  void visit(const std::function<void(const OwnedLock&)>& visit) const;

 private:
  struct Held {
    LockType type;
    uint32_t pid;
    friend bool operator==(const Held&, const Held&) = default;
  };
  using Owners = std::map<LockOwner, RangeMap<Held>>;

  Owners& of(LockKind kind) { return kind == LockKind::kWhole ? whole_ : ranges_; }
  const Owners& of(LockKind kind) const { return kind == LockKind::kWhole ? whole_ : ranges_; }
  // Owners in the way, until `found` answers false.
  void find(const OwnedLock& wanted, const std::function<bool(const LockOwner&)>& found) const;

  Owners ranges_;
  Owners whole_;
};

}  // namespace swale::fs
