// All subcommands of `swale`, for the command itself and for what is made of their descriptions.
#pragma once

#include "tools/options.h"

namespace CLI {
class App;
}

namespace swale::tools {

// Describes the application and gives it every subcommand; `*run` is set to what the chosen one does.
void add_commands(CLI::App& app, Run* run);

}  // namespace swale::tools
