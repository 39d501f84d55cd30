// NodeTurn: which of the ranks on a node mounts the files of I/O servers there, when all others have used
// them, and whether the mount is there.
//
//   SWALE_JOB_RENDEZVOUS/iond-mount-HASH       of the job, the node and the mountpoint; whoever mounts has it
//                                              locked, and writes a byte when the mount is there
//   SWALE_JOB_RENDEZVOUS/iond-mount-HASH.used  locked by all others that use the mount
//
// Locks end with their processes, so nobody waits for one that has died.
// Threads: one. Errors: of the folder where ranks meet, with its path.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "io/descriptor.h"

namespace swale::tools {

class NodeTurn {
 public:
  // Before the ranks meet the servers, so that each has its place before the first one can end.
  static Result<NodeTurn> take(const std::string& mountpoint);
  bool is_first() const { return first_; }
  void tell_mounted() const;
  // By the others. kUnavailable: the first one has ended; kDeadlineExceeded.
  Status wait_until_mounted(Nanos deadline) const;
  // The program has ended. Returns, for the first one, when no other uses the mount any more; both names are
  // then removed.
  void end() const;

 private:
  std::string path_;
  io::Descriptor mounts_;
  io::Descriptor used_;
  bool first_ = true;
};

}  // namespace swale::tools
