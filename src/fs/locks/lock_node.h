// LockNode: a node's side of locks: what its programs wait for, and what its roots are to be told; a passive
// machine (lock_messages.h). Messages come out and their answers go in; what programs are told comes out.
//
//   begin() ─► set() ─► a message ─► answered() or failed() ─► take_told()
//                                     └► waits: granted(), or a look or a cancellation of due()
//
// A message that failed at a node that lives may still come: it is owed, and sent again until it is answered;
// a request to lock is then made void. Nothing else is sent to that root before: owed(). So no late copy ends
// a lock that was taken after it. What ends locks is owed from the beginning.
//
// Threads: one at a time. Invariants: each request that was begun is told once. Calls that throw
// std::bad_alloc (begin, set, end_*, due) have changed nothing, or may be repeated; the others do not throw.
// Memory: about 200 bytes a request, and 100 an owner of locks.
#pragma once

#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/locks/lock_messages.h"

namespace swale::fs {

class LockNode {
 public:
  struct Told {
    uint64_t request = 0;
    int error = 0;
  };
  struct Due {
    NodeId root = 0;
    LockMessage message;
  };

  explicit LockNode(NodeId own) : own_(own) {}

  uint64_t begin();
  // Once owed() is empty. `handle`: the open file through which it is taken.
  LockMessage set(uint64_t request, NodeId root, const meta::FileId& file, uint64_t handle,
                  const FileLock& wanted, bool waits);
  LockMessage get(const meta::FileId& file, const FileLock& wanted) const;
  // All that an owner has of the kind of fcntl; or that was taken through an open file. Whether it had some:
  // then its end is owed.
  bool end_owner(NodeId root, const meta::FileId& file, uint64_t owner);
  bool end_handle(NodeId root, const meta::FileId& file, uint64_t handle);

  // Of any message that came out of here. `down`: the root is gone, and its locks are.
  void answered(NodeId root, const LockMessage& message, const LockAnswer& answer) noexcept;
  void failed(NodeId root, const LockMessage& message, bool down) noexcept;
  void granted(NodeId root, uint64_t number) noexcept;
  void refuse(uint64_t request, int error) noexcept;  // one for which nothing was sent
  // What it is told, if it waits and is not granted before its root hears of this.
  void interrupt(uint64_t request, int error = EINTR) noexcept;
  void interrupt_all(int error) noexcept;
  void abandon_all(int error) noexcept;  // they are told, whatever becomes of their messages

  // What is owed to the root: to be sent first; none: nothing is.
  std::optional<LockMessage> owed(NodeId root) const;
  // Cancellations of what was interrupted; and if `looks`, those that have no answer yet, owed messages, and
  // whether requests still wait: at most `count` of these, in turn.
  std::vector<Due> due(bool looks, size_t count);
  bool cancels() const;  // due(false, 0) has some
  std::list<Told> take_told() noexcept { return std::exchange(told_, {}); }
  bool idle() const;  // nothing is under way, owed or waits

 private:
  struct Request {
    enum class State { kBegun, kAsking, kWaiting, kCancelling } state = State::kBegun;
    int interrupted = 0;   // what it is told then; 0: it is not
    bool granted = false;  // before the answer that it waits
    NodeId root = 0;
    meta::FileId file = {};
    uint64_t number = 0;   // of its message
    uint64_t cancel = 0;   // of its cancellation
    std::list<Told> told;  // one, for told_
  };
  struct Sent {
    LockMessage message;
    bool owed = false;
  };
  struct Root {
    std::map<uint64_t, Sent> open;  // by number: messages that wait for an answer, or are owed
  };
  struct Owner {
    bool ranges = false, whole = false;  // may have some
    std::set<uint64_t> handles;
  };
  using Owners = std::map<uint64_t, Owner>;

  LockMessage numbered(NodeId root, LockMessage message);
  void owe_end(NodeId root, const meta::FileId& file, uint64_t owner, bool whole);
  LockMessage stamped(const Root& root, LockMessage message) const;
  void tell(uint64_t request, int error) noexcept;
  void lose(NodeId root) noexcept;
  std::optional<uint64_t> request_of(uint64_t number) const;

  const NodeId own_;
  uint64_t last_ = 0;    // number of a request or a message
  uint64_t looked_ = 0;  // the last number that due() has looked at
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, uint64_t> by_number_;  // requests that were asked
  std::map<NodeId, Root> roots_;
  std::unordered_map<meta::FileId, Owners, meta::FileIdHash> owners_;
  std::list<Told> told_;
};

}  // namespace swale::fs
