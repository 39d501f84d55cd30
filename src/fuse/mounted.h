// serve_mounted: a FileSystem as a mount, from its beginning to its end: by umount, or by SIGTERM, SIGINT or
// SIGHUP, which it handles meanwhile.
//
// Threads: up to Mounted::threads that serve requests; one mount a process at a time.
// Errors: what hinders the mount, with a remedy.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "fs/file_system.h"

namespace swale::fuse {

struct Mounted {
  std::string mountpoint;  // a directory that is there
  std::string name;        // what `mount` and `df` show
  bool allow_other = false;
  bool trusts_files = true;  // false: nosuid, nodev
  bool read_only = false;
  unsigned threads = 10;
  size_t nodes_max = 0;  // that the kernel may know; 0: by the limit of descriptors
};

// Returns when the mount has ended and is gone. `ready` is called once it is there.
Status serve_mounted(const Mounted& mounted, fs::FileSystem* fs, size_t descriptors,
                     const std::function<void()>& ready);

// The mountpoint is a directory. kBusy: an earlier mount of it is dead.
Status expect_mountpoint(const std::string& path);

// For a process that keeps a descriptor of each file that it knows. The limit.
size_t raise_descriptor_limit();

// Threads that begin while it lives leave signals to the thread that serves the mount.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace swale::fuse
