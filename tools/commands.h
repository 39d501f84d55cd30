// All subcommands of `swale`, for the command itself and for the manuals and completions made from their
// descriptions.
#pragma once

#include "tools/options.h"

namespace CLI {
class App;
}

namespace swale::tools {

// Describes the application and adds every subcommand; sets `*run` to the action of the chosen one.
void add_commands(CLI::App& app, Run* run);

}  // namespace swale::tools
