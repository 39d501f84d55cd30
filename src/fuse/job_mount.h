// run_job_mount: the tree of a job over a backing directory, from its opening to its end
// (docs/design/file-system.md): names, files, and a mount over the directory itself, of one node or of each
// of several, whose servers meet in the backing's `.swale`. What stands where: src/fuse/job_folders.h.
//
// After an end at which all came to the backing nothing is left of the job. Else the next run on the same
// backing, of as many nodes, goes on, or a recovery (JobMountOptions::mounts) brings all there.
//
// The end of several: each node unmounts; when all have, each drains; when all have, each closes. A failure
// of one is the failure of all.
//
// Threads: as serve_mounted; returns when the mount has ended and what was wanted then is done.
// Errors: what hinders the mount, with a remedy; a drain that failed, which says how to repeat it. kAborted:
// the job's servers are started anew, or the job has ended, without this one: it has changed nothing since.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "net/job/job_settings.h"

namespace swale::fuse {

inline constexpr char kServeDocument[] = "serve.json";

struct JobMountOptions {
  enum class AtEnd { kDrain, kKeep, kDiscard };
  // Where what fsync has promised is durable. kNode needs a buffer that was named (temporary files may not
  // outlive a restart of the machine) and that is on a disk; without one, and with several nodes, it is
  // kBacking.
  enum class Fsync { kNode, kBacking };
  // The nodes of a job, of which this is one.
  struct Nodes {
    net::Rank own = 0;  // from 0
    int32_t count = 1;
    std::string meeting;  // a word that the servers have in common, and no others at the time
    bool again = false;   // a server has ended: those that it has left are to end, and to be started again
    net::JobSettings settings;
  };
  std::string backing;  // a directory that is there
  std::string at;       // where it is mounted; "": over the backing
  std::string buffer;   // on node-local storage; "": in the folder of temporary files
  uint64_t memory_bytes = kGiB;
  AtEnd at_end = AtEnd::kDrain;
  Fsync fsync = Fsync::kNode;
  unsigned threads = 10;
  bool mounts = true;  // false: only what the end does
  bool looks = false;  // without `mounts`: what is left of a job is mounted (job_losses.h)
  // The tree is served and mounted nowhere (fs/job/unmounted_server.h): until SIGTERM, SIGINT or SIGHUP.
  bool unmounted = false;
  std::optional<Nodes> nodes;
  // Once the mount is there. `remark`: what a user must know of this buffer, or "".
  std::function<void(const std::string& remark)> ready;
};

Status run_job_mount(const JobMountOptions& options);

// What programs find in kUnmountedVariable, while such a tree is served.
Result<std::string> place_of_unmounted(const JobMountOptions& options);

}  // namespace swale::fuse
