// The tree of a job as commands serve it: `swale serve`, and `swale run --backing`, which starts it beside a
// program.
// Threads: one, which has started none.
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fuse/job_mount.h"
#include "tools/command_line.h"
#include "tools/fallback.h"

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

// The nodes as a launcher has started this process on them, a rank each: none if it is alone.
Result<std::optional<fuse::JobMountOptions::Nodes>> find_launch();

// Brings all of a mounted tree, of all nodes, to its backing, and returns when it is there.
Status command_sync(const std::string& path);
// The same; with a bar on a terminal, else a line now and then.
Status sync_tree(const std::string& path);

inline constexpr int kServerRestartsMax = 3;  // of a server that is killed again and again

// Runs a program with the tree of `backing`: starts its server, and again if that is killed; ends it when the
// program has ended. Returns the program's exit code; if that is 0, the server's. `fallback`: where no server
// starts, the program may have the directory itself.
int run_with_tree(const fuse::JobMountOptions& options, const std::vector<std::string>& program,
                  const Fallback& fallback);
// The same for a rank of a launch; options.nodes: the ranks. The first of each node starts its server; all
// wait for all mounts, and at the end for their node's server.
int run_on_nodes(const fuse::JobMountOptions& options, const std::vector<std::string>& program,
                 const Fallback& fallback);
// The failure, of which `failed` is the exit code, has been told: where that is wanted, and free, the program
// takes this process's place, and writes to the directory itself.
int run_without_tree(const Fallback& fallback, int failed, const std::vector<std::string>& program);
// In trees that are mounted already, and outlive it: the program takes this process's place.
int run_in_mounted_tree(const std::vector<std::string>& program, bool fallback);
// Trees without a mount: what a program of this node finds in fs::kUnmountedVariable. Of one that swale start
// has started over the directory; or of the only one, or the one that has the working directory. kNotFound.
Result<std::string> find_started_unmounted(const std::string& backing);
Result<std::string> find_unmounted_here();

// Starts a program as a child, in the working directory as a mount over it shows it; `first`: what it does
// first. -1: it could not be, and errno says why.
pid_t start_beside(const std::vector<std::string>& words, const sigset_t& usual,
                   const std::function<void()>& first = {});

}  // namespace swale::tools
