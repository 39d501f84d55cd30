// IdleNodes: asks the kernel to forget files that nobody uses, when it knows so many that descriptors run
// out.
//
// A node holds a descriptor until the kernel forgets it, and the kernel forgets when it wants memory, not
// when we want descriptors. FUSE has a notice that a name is not valid any more: the kernel drops it, and
// with the last name, if nobody has the file open, the inode. The next lookup brings it back. Directories are
// left alone (NodeTable::take_idle), so a tree with more directories in use than descriptors still ends at
// the limit.
//
// A notice waits for the lock of its directory, which a call that waits for our answer may hold. So a thread
// of its own gives them, and stop() goes on serving the kernel until that thread has ended.
// Threads: one makes, stops and destroys it.
#pragma once

#include <atomic>
#include <thread>

#include "base/status.h"
#include "fs/file_system.h"

struct fuse_session;

namespace swale::fuse {

class IdleNodes {
 public:
  // From `nodes_max` nodes on. The session is mounted, and outlives this, as `fs` does.
  IdleNodes(fs::FileSystem* fs, fuse_session* session, size_t nodes_max);
  ~IdleNodes();
  IdleNodes(const IdleNodes&) = delete;
  IdleNodes& operator=(const IdleNodes&) = delete;

  Status start();
  // When the session's loop has ended, and before it is unmounted.
  void stop();

 private:
  void run();
  void forget_some();

  fs::FileSystem* const fs_;
  fuse_session* const session_;
  const size_t nodes_max_;
  std::thread thread_;
  std::atomic<bool> crowded_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  int doorbell_ = -1;
};

// How many nodes may be idle, and how many files the store may hold, in a process with so many descriptors.
size_t nodes_max_of(size_t descriptors);
size_t store_files_max_of(size_t descriptors);

}  // namespace swale::fuse
