// JobLocks: locks on files of a job's tree, which processes of several nodes use: FileLocks on RemoteLocks.
// With one node the kernel's own locks do.
//
// Invariants: what this node has written of a file is committed before a lock on it ends or is made weaker:
// so the next one that locks it, on any node, reads it.
// Threads: as FileLocks. Errors: as FileLocks; a commit that fails is told, and the lock ends all the same
// (one that was to be made weaker stays).
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "fs/file_locks.h"
#include "fs/peers/remote_locks.h"

namespace swale::fs {

class JobLocks final : public FileLocks {
 public:
  using Commit = std::function<int(OpenFile&)>;

  JobLocks(NodePeers& peers, Commit commit) : commit_(std::move(commit)), remote_(peers) {}
  Status start() { return remote_.start(); }
  void stop() noexcept { remote_.stop(); }

  uint64_t begin(Answered answered) override { return remote_.begin(std::move(answered)); }
  void set(OpenFile& file, const FileLock& wanted, bool waits, uint64_t request) override;
  void interrupt(uint64_t request) override { remote_.interrupt(request); }
  int get(OpenFile& file, const FileLock& wanted, FileLock* in_the_way) override;
  int end_owner(OpenFile& file, uint64_t owner) override;
  void end_waits() override { remote_.end_waits(); }

  // The open file is over, and committed.
  void release(OpenFile& file) noexcept;
  Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload) {
    return remote_.answer(method, from, payload);
  }

 private:
  const Commit commit_;
  RemoteLocks remote_;
};

}  // namespace swale::fs
