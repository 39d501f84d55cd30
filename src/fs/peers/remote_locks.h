// RemoteLocks: locks of programs on the nodes of a job: a LockNode and a LockRoot on NodePeers. The root of a
// file keeps its locks.
//
//   set(), end_*() ─► root (here: at once; else NodePeers::call) ─► answered, or it waits without a thread
//   the root's grants ─► the keeper ─► kLockGranted ─► the node that waits ─► answered
//
// The keeper also cancels what was interrupted, repeats what is owed, and once a second asks whether requests
// still wait (a message about a grant may be lost) and whether nodes live that are in others' way. The locks
// of a node that is down end. A node that does not answer costs the others kShortPatience once: until it is
// heard of again it is told nothing, and asks itself.
//
// Threads: any; one of its own, from start() to stop(). No callback is called with the mutex.
// Errors: EIO, which names the node and the file; FileLocks has the others. Limits: those of LockRoot.
#pragma once

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "fs/locks/lock_node.h"
#include "fs/locks/lock_root.h"
#include "fs/peers/node_peers.h"

namespace swale::fs {

class RemoteLocks {
 public:
  explicit RemoteLocks(NodePeers& peers, const LockRules& rules = {})
      : peers_(peers), root_(rules), node_(peers.own()) {}
  ~RemoteLocks() { stop(); }
  RemoteLocks(const RemoteLocks&) = delete;
  RemoteLocks& operator=(const RemoteLocks&) = delete;

  Status start();
  void stop() noexcept;

  uint64_t begin(FileLocks::Answered answered);
  // `failed`: 0, or what the program is told although the lock is set.
  void set(const meta::FileId& file, uint64_t handle, const FileLock& wanted, bool waits, uint64_t request,
           int failed = 0) noexcept;
  void refuse(uint64_t request, int error) noexcept;
  void interrupt(uint64_t request);
  Result<FileLock> get(const meta::FileId& file, const FileLock& wanted);
  Status end_owner(const meta::FileId& file, uint64_t owner);
  Status end_handle(const meta::FileId& file, uint64_t handle);
  void end_waits();

  // kLock, kLockGranted, kLockNodeGone.
  Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload);

 private:
  struct Pending {
    FileLocks::Answered answered;
    int failed = 0;
  };

  void keep() noexcept;
  void tell_grants(const std::vector<LockRoot::Grant>& grants);
  void send_due(const std::vector<LockNode::Due>& due);
  void look_for_dead(const std::set<NodeId>& suspects);
  void end_locks_of(NodeId node);
  Result<LockAnswer> ask(NodeId root, const LockMessage& message, Nanos patience);
  Result<LockAnswer> handle(const LockMessage& message);
  Status send(NodeId root, const LockMessage& message, Nanos patience);
  Status settle(NodeId root);
  void sort_grants() REQUIRES(mutex_);
  void hand_out();

  NodePeers& peers_;
  Mutex mutex_;
  CondVar changed_;
  LockRoot root_ GUARDED_BY(mutex_);
  LockNode node_ GUARDED_BY(mutex_);
  std::map<uint64_t, Pending> pending_ GUARDED_BY(mutex_);  // by request
  std::vector<LockRoot::Grant> grants_ GUARDED_BY(mutex_);  // of other nodes, to be told
  std::set<NodeId> silent_ GUARDED_BY(mutex_);
  size_t answering_ GUARDED_BY(mutex_) = 0;  // callbacks that are being called
  bool stop_ GUARDED_BY(mutex_) = true;
  std::thread keeper_;
};

}  // namespace swale::fs
