// LockRoot: the locks of all files whose root this node is: a passive machine. Messages go in, answers and
// grants come out.
//
// Requests that wait stand in the order in which they came; each change that ends or weakens a lock grants
// those that nothing is in the way of any more. A request that does not wait overtakes those that do, as in
// Linux.
//
// Threads: one at a time. Invariants: (1) each number of a node is obeyed once (lock_messages.h); (2) a node
// that is gone has no locks and gets none.
// Errors: kUnavailable for messages of a node that is gone. A call that throws std::bad_alloc is completed by
// the next copy of its message, which may be void; a grant that nobody hears of, by a look.
// Limits: kFileLocksMax a file.
// Memory: LockTable, and about 150 bytes a request that waits; answers of a node above its floor.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "fs/locks/lock_messages.h"

namespace swale::fs {

inline constexpr size_t kFileLocksMax = 1 << 16;  // ranges of a file, and as many requests that wait

// For tests: what is left out, which they must notice.
struct LockRules {
  bool obey_once = true;      // late copies do nothing
  bool end_with_node = true;  // locks of a node that is gone end
  bool void_given_up = true;  // requests that were given up are undone
  bool find_deadlocks = true;
};

class LockRoot {
 public:
  struct Grant {  // of a request
    NodeId node = 0;
    uint64_t number = 0;
  };

  explicit LockRoot(const LockRules& rules = {}) : rules_(rules) {}

  Result<LockAnswer> handle(const LockMessage& message);
  // Since the last call; the nodes are to be told.
  std::vector<Grant> take_grants();

  // Nodes that have what others wait for, or were refused since the last call: somebody should look whether
  // they live.
  std::set<NodeId> take_suspects();
  void forget_node(NodeId node);

  bool empty() const { return files_.empty(); }  // no lock, nobody waits

 private:
  struct Waiter {
    uint64_t number;
    OwnedLock wanted;
    bool is(const Grant& request) const { return number == request.number && wanted.node == request.node; }
  };
  struct File {
    LockTable table;
    std::vector<Waiter> waiters;
  };
  struct Node {
    uint64_t floor = 0;
    std::map<uint64_t, std::optional<LockAnswer>> answers;  // from the floor on; none: memory ended meanwhile
  };
  using Files = std::unordered_map<meta::FileId, File, meta::FileIdHash>;

  LockAnswer obey(const LockMessage& message);
  LockAnswer obey_once(const LockMessage& message);
  LockAnswer set(const LockMessage& message);
  void undo(const LockMessage& message);
  bool waits(const meta::FileId& id, const Grant& request) const;
  bool stop_waiting(const meta::FileId& id, const Grant& request);
  bool would_deadlock(const File& file, const OwnedLock& wanted) const;
  void grant_waiters(File& file);
  void change(const meta::FileId& id, const std::function<void(File&)>& change);

  const LockRules rules_;
  Files files_;
  std::map<NodeId, Node> nodes_;
  std::set<NodeId> gone_;
  std::set<NodeId> refused_for_;
  std::vector<Grant> grants_;
};

}  // namespace swale::fs
