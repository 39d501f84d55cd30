// Network: a network of its own for each place of a job under test, joined by one switch, so that a link can
// be cut as links are cut: without a word to either end. A place is a rank or, with Places::kHosts, a host
// for several: processes there share memory with each other and with nobody else.
//
// Linux namespaces, held by child processes, and pairs of virtual Ethernet devices on a bridge; all of it is
// gone when the children are, also after kill -9 of the test, and so are the processes of hosts. Networks
// alone are no hosts: UCX takes processes that see each other's process numbers for neighbours and waits for
// ever for shared memory. Needs root (or user namespaces) and `ip` (iproute2).
// Threads: one object is used by one thread, several may be used by several.
#pragma once

#include <sys/types.h>

#include <cstdint>
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

  enum class Places { kNetworks, kHosts };

  // Null where the system does not let us; `why` says so.
  static std::unique_ptr<Network> make(int places, std::string* why, Places kind = Places::kNetworks);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Words before the program that put it into the place. The program in a host is a child of the process that
  // is started.
  std::vector<std::string> enter(int place) const;
  // A script that a launcher takes for ssh: SCRIPT ADDRESS COMMAND... runs the command on the host of this
  // address.
  // False: it cannot be written.
  bool write_agent(const std::string& path) const;
  // Words that put a launcher where it reaches all hosts, on none of them: on the switch, with the test's own
  // processes.
  std::vector<std::string> enter_switch() const;
  static std::string address(int place);
  bool cut(int rank, Cut how);
  struct Traffic {
    uint64_t across = 0;  // bytes that came from other places
    uint64_t inside = 0;  // bytes that went through the place's own loopback device
  };
  Traffic traffic(int place) const;
  // Whether the rank reaches the other's address: what a test asks before and after a cut.
  bool reaches(int rank, int other) const;

 private:
  Network() = default;
  static pid_t hold_namespace(Places kind = Places::kNetworks, int number = 0);
  bool run(pid_t holder, const std::string& command) const;

  Places kind_ = Places::kNetworks;
  pid_t switch_ = -1;
  std::vector<pid_t> ranks_;  // who holds each place
};

}  // namespace swale::faults
