// A command that serves something: in the foreground, or in a process of its own, from which the shell gets
// its prompt back once it is there.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace swale::tools {

struct Serving {
  bool foreground = false;
  bool json = false;            // what is said is JSON
  bool keeps_messages = false;  // in the background: stderr leads somewhere
  // Returns when all has ended. Calls `ready` once, with what is to be printed then.
  std::function<Status(const std::function<void(const std::string& text)>& ready)> serve;
};

// The exit code: of the whole in the foreground, else of the beginning. The process has no threads yet.
int serve_in_background(const Serving& serving);

}  // namespace swale::tools
