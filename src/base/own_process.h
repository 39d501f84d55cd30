// OwnProcess: remembers the process that made it. A child made by fork inherits the objects of its parent,
// but not the threads that serve them: whoever waits in the child for one of these threads waits for ever. So
// ask before.
//
// Threads: any. Cost: one load and a comparison, without a system call.
#pragma once

#include <cstdint>

namespace swale {

class OwnProcess {
 public:
  OwnProcess() noexcept;

  // False in a child made by fork after this was made.
  bool is_this() const noexcept;

 private:
  uint64_t forks_;  // how often this process's line of ancestors had forked
  int32_t id_;
};

}  // namespace swale
