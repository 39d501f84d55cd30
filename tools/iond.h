// An I/O server as a command runs it: `swale iond`, and `swale run`, which starts servers beside a program.
// Threads: one, which has started none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_choices.h"

namespace swale::tools {

// What a server is told. The choices outlive the command line.
struct IondChoices {
  TierChoices tier;  // %r in its directories stands for the server's rank
  bool json = false;

  void add_to(OptionSet command, TierChoices::Folders folders = TierChoices::Folders::kRequired);
};

// Serves as a rank of the job that the environment describes, until all ranks have left. Calls `joined` once
// when all ranks have met: from then on the server ends by itself when they have ended. Returns the exit
// code, and has said what is wrong.
int serve_iond(const IondChoices& choices, const std::function<void()>& joined);

// What a mount of the servers' files is told.
struct IondMountChoices {
  std::string mountpoint;
  std::string options;  // "iond...."
  unsigned threads = 10;
  bool joins = false;  // servers that this process's launch, or somebody by hand, has among the ranks
};

// The job that a mount of servers' files has joined.
struct IondMountJob {
  uint32_t servers = 0;
  int32_t programs = 0, program = 0;  // its ranks that are no servers, and which of them this is
};

class NodeTurn;

// Serves the mount as a rank of the job that the environment describes, until it is unmounted or gets
// SIGTERM. `ready` is called once the mount is there. `turn`: which of a node's ranks mounts; null: this one.
Status serve_iond_mount(const IondMountChoices& choices, const NodeTurn* turn,
                        const std::function<void(const IondMountJob&)>& ready);

// The environment says which rank of the servers' job a process is. What it has said of the launch before is
// kept, and restored for a program that is none of these ranks.
void keep_launch_variables();
void restore_launch_variables();

// Runs a program while the mount, a child of this process, is there. Returns the program's exit code; if that
// is 0, the mount's.
int run_on_iond_mount(const IondMountChoices& choices, const std::vector<std::string>& words);

}  // namespace swale::tools
