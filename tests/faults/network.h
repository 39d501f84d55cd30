// Network: a network of its own for each rank of a job under test, joined by one switch, so that a link can be cut as
// links are cut: without a word to either end.
//
// Linux network namespaces, held by child processes, and pairs of virtual Ethernet devices on a bridge; all of it is gone
// when the children are, also after kill -9 of the test. Needs root (or user namespaces) and `ip` (iproute2).
// Threads: one object is used by one thread, several may be used by several.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace swale::faults {

class Network {
 public:
  enum class Cut {
    kSilent,    // the switch forgets the rank's port: frames vanish, the link still looks up
    kLinkDown,  // the port goes down, and the rank's own device loses its carrier
  };

  // Null where the system does not let us; `why` says so.
  static std::unique_ptr<Network> make(int ranks, std::string* why);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Words before the program that put it into the rank's network.
  std::vector<std::string> enter(int rank) const;
  bool cut(int rank, Cut how);
  // Whether the rank reaches the other's address: what a test asks before and after a cut.
  bool reaches(int rank, int other) const;

 private:
  Network() = default;
  static pid_t hold_namespace();
  bool run(pid_t holder, const std::string& command) const;

  pid_t switch_ = -1;
  std::vector<pid_t> ranks_;
};

}  // namespace swale::faults
