// An I/O server as a command runs it: `swale iond`, and `swale run`, which starts servers beside a program.
// Threads: one, which has started none.
#pragma once

#include <functional>
#include <string>

#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_choices.h"

namespace swale::tools {

// What a server is told. The choices outlive the command line.
struct IondChoices {
  TierChoices tier;  // %r in its directories stands for the server's rank
  bool json = false;

  void add_to(OptionSet command, TierChoices::Log log = TierChoices::Log::kRequired);
};

// Serves as a rank of the job that the environment describes, until all ranks have left. Calls `joined` once
// when all ranks have met: from then on the server ends by itself when they have ended. Returns the exit
// code, and has said what is wrong.
int serve_iond(const IondChoices& choices, const std::function<void()>& joined);

}  // namespace swale::tools
