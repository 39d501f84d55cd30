// libswale_preload.so, as commands find, try and give it to programs.
// Threads: one.
#pragma once

#include <string>

#include "base/status.h"

namespace swale::tools {

// Beside this command, or where it is installed.
Result<std::string> find_preload_library();

// Finds it, and tries whether the system lets it into a program. Programs that this process starts from now
// on have it, after the preload libraries of the user. Else the status says what to do.
Status preload_programs();

// By its file, the library comes to a program, and sees its calls: else the status says why not.
Status expect_preloadable(const std::string& program);

// The version of the library in this process; "": it is not here.
std::string preloaded_version();

}  // namespace swale::tools
