// run_mount: a tiered write buffer as a mounted file system, from the opening of its store to the end of the
// mount.
//
// Threads: those of the store, and up to MountOptions::threads that serve requests; returns when the mount
// has ended: by umount, or by SIGTERM, SIGINT or SIGHUP, which it handles while it runs (one mount a process
// at a time).
// Errors: what hinders the mount, with a remedy; afterwards, a failed drain.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/clock.h"
#include "tier/store/store.h"

namespace swale::fuse {

struct MountOptions {
  std::string mountpoint;  // a directory that is there
  tier::StoreOptions store;
  tier::Store::AtClose at_unmount = tier::Store::AtClose::kKeep;
  bool allow_other = false;  // users other than the one that mounts
  // an ordinary user's mount: whoever else may write into the backing tree is trusted (tree_trust.h)
  bool trust_tree = false;
  unsigned threads = 10;
  // files that the kernel may know before it is asked to forget idle ones; 0: by the limit of descriptors
  size_t nodes_max = 0;
  std::string trace_file;  // gets the requests (tier/trace/trace_format.h); must not be there; "": none
  Nanos wait = 0;          // for an earlier mount of the directories that is still ending
  // for tests: another one than the operating system's files; outlives the mount
  io::Device* device = nullptr;
  bool all_as_this_process = false;  // for the benchmark: requests do not run as their callers
  // for tests: called when a directory was made (fs/tier_fs.h)
  std::function<void(int parent, const char* name, mode_t mode)> made_directory;
  // Called once the mount is there, with what opening the store has found.
  std::function<void(const tier::RecoveryReport&)> ready;
};

Status run_mount(const MountOptions& options);

}  // namespace swale::fuse
