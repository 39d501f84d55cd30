// Iond::Part: one request to one server, and what comes of it. For the files of Iond alone.
// Threads: a value.
#pragma once

#include <functional>
#include <string>

#include "iond/iond.h"

namespace swale::iond {

struct Iond::Part {
  uint32_t server = 0;
  IondRequest request = {};
  std::function<void(std::string*)> append_data = {};  // of a write
  std::function<void(const IondAnswer&)> take = {};    // may be empty
};

}  // namespace swale::iond
