// run_iond_mount: the files of a job's I/O servers as a mounted file system (iond_fs.h), by a rank of that
// job which is none of the servers.
//
// Threads: up to IondMountOptions::threads that serve requests; returns when the mount has ended: by umount,
// or by SIGTERM, SIGINT or SIGHUP, which it handles while it runs (one mount a process at a time).
// Errors: what hinders the mount, with a remedy; afterwards, what closing the servers tells.
#pragma once

#include <functional>
#include <string>

#include "iond/iond.h"

namespace swale::fuse {

struct IondMountOptions {
  std::string mountpoint;  // a directory that is there
  iond::IondOptions servers;
  unsigned threads = 10;
  Status mine = {};  // a failure of this rank before, of which all shall hear
  // Another rank of this node mounts: returns when its mount is there. Then this one uses the servers no
  // further, and leaves at SIGTERM.
  std::function<Status()> wait_for_mount;
  // Called once the mount is there.
  std::function<void(const iond::Iond& servers)> ready;
};

// Collective, with all ranks of the job, as swale_iond_open and swale_iond_close are.
Status run_iond_mount(net::Job& job, const IondMountOptions& options);

}  // namespace swale::fuse
