// StandInLocks: locks of ranges (fcntl) on files of a tree that is mounted nowhere, of several nodes. The
// file's root grants them (JobLocks). The program takes each in its node's kernel, too, on the plain file: by
// that this learns that its process has ended, or has closed the file.
//
//   lock    set() ─► the kernel     unlock    the kernel ─► set()
//
// Threads: thread-safe. sweep(): one thread, some times a second.
// Invariants: a lock ends at its root after the kernel has it no more.
// Errors: errnos; EAGAIN: another process has it: nobody waits here. Needs /proc/locks.
// Limits: processes that wait for each other are not found out (EDEADLK). The lock of one that has ended goes
// after kMissesMax sweeps.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "fs/job/job_fs.h"
#include "fs/log/unmounted_format.h"

namespace swale::fs {

// What a program has asked for; none: it is no lock. And what it is told.
std::optional<FileLock> lock_of(const UnmountedRequest& request, pid_t process);
void tell_lock(const FileLock& found, UnmountedAnswer* answer);

class StandInLocks {
 public:
  static constexpr int kMissesMax = 10;

  explicit StandInLocks(JobFs& fs) : fs_(fs) {}
  ~StandInLocks();
  StandInLocks(const StandInLocks&) = delete;
  StandInLocks& operator=(const StandInLocks&) = delete;

  // `inode`: of the plain file. Owner and pid of the lock: the process.
  int set(Node& node, ino_t inode, const FileLock& wanted);
  int get(Node& node, const FileLock& wanted, FileLock* in_the_way);
  // `before`: an owner's locks on a file end.
  void sweep(const std::function<void(const meta::FileId&)>& before);

 private:
  struct Owner {
    ino_t inode = 0;
    int misses = 0;
  };
  struct File {
    Mutex mutex;           // a lock is asked for, or ends; taken before that of the table
    Node* node = nullptr;  // with a lookup
    std::unique_ptr<OpenFile> handle;
    std::map<uint64_t, Owner> owners;
  };
  std::shared_ptr<File> file_of(Node& node, int* failed);
  void end(File& file);

  JobFs& fs_;
  Mutex mutex_;
  std::map<meta::FileId, std::shared_ptr<File>> files_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
