// The tree of a job as commands serve it: `swale serve`, and `swale run --backing`, which starts it beside a
// program.
// Threads: one, which has started none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fuse/job_mount.h"
#include "tools/command_line.h"

namespace swale::tools {

// What a server is told. The choices outlive the command line.
struct TreeChoices {
  std::string at;
  std::string buffer;
  uint64_t memory = kGiB;
  std::string fsync = "node";

  void add_to(OptionSet command);
  void add_buffer(OptionSet command);  // alone: of what a server has left
  fuse::JobMountOptions options(const std::string& backing, const std::string& at_end) const;
};

// Runs a program with the tree of `backing`: starts its server, and again if that is killed; ends it when the
// program has ended. Returns the program's exit code; if that is 0, the server's.
int run_with_tree(const fuse::JobMountOptions& options, const std::vector<std::string>& program);

}  // namespace swale::tools
