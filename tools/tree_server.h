// TreeServer: a server of the tree of a job as a child of this process.
// Threads: one, which has started none.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "fuse/job_mount.h"

namespace swale::tools {

class TreeServer {
 public:
  // Returns 0 when the mount is there. Else the exit code of the server, which has said why. `usual`: its
  // signals.
  int start(const fuse::JobMountOptions& options, const sigset_t& usual);
  // A child has ended. Whether it was the server.
  bool heard(pid_t child, int state);
  // It is to end the mount, and to do what was wanted then.
  void tell_to_end() const;

  bool ended() const { return ended_; }
  int exit_code() const { return exit_code_; }

 private:
  pid_t process_ = -1;
  bool ended_ = true;
  int exit_code_ = 0;
};

}  // namespace swale::tools
