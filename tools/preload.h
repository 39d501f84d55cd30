// libswale_preload.so, as commands find, try and give it to programs.
// Threads: one.
#pragma once

#include <string>

#include "base/status.h"

namespace swale::tools {

// Beside this command, or where it is installed.
Result<std::string> find_preload_library();

// Starts this command with the library, and asks it whether it has come. Where it has not, the system has
// said why on standard error, and the status says what to do.
Status try_preload(const std::string& library);

// Programs that this process starts from now on have it, after the preload libraries of the user.
void preload_from_now_on(const std::string& library);

// The version of the library in this process; "": it is not here.
std::string preloaded_version();

}  // namespace swale::tools
