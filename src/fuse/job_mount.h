// run_job_mount: the tree of a job over a backing directory, from its opening to its end
// (docs/design/file-system.md): a job of one node, names, files, and a mount over the directory itself.
//
//   BUFFER (0700) := serve.json names/ state/ spill/    serve.json: sealed document "swale-serve" 1: device,
//                                                       inode (of the backing), job
//
// After an end at which all came to the backing nothing is left of it. Else the next run on the same backing
// goes on, or a recovery (JobMountOptions::mounts) brings all there.
//
// Threads: as serve_mounted; returns when the mount has ended and what was wanted then is done.
// Errors: what hinders the mount, with a remedy; a drain that failed, which says how to repeat it.
#pragma once

#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::fuse {

inline constexpr char kServeDocument[] = "serve.json";

struct JobMountOptions {
  enum class AtEnd { kDrain, kKeep, kDiscard };
  // Where what fsync has promised is durable. kNode needs a buffer that was named (temporary files may not
  // outlive a restart of the machine) and that is on a disk; without one it is kBacking.
  enum class Fsync { kNode, kBacking };
  std::string backing;  // a directory that is there
  std::string at;       // where it is mounted; "": over the backing
  std::string buffer;   // on node-local storage; "": in the folder of temporary files
  uint64_t memory_bytes = kGiB;
  AtEnd at_end = AtEnd::kDrain;
  Fsync fsync = Fsync::kNode;
  unsigned threads = 10;
  bool mounts = true;  // false: only what the end does
  // Once the mount is there. `remark`: what a user must know of this buffer, or "".
  std::function<void(const std::string& remark)> ready;
};

Status run_job_mount(const JobMountOptions& options);

}  // namespace swale::fuse
