// Which fabric the ranks of a job talk by, and why.
//
//   one memory                         UCX, shared memory alone: no port
//   several nodes, RDMA on all         UCX; without TCP, unless the network is trusted
//   several nodes, trusted by all      UCX, over TCP too
//   several nodes, else                TLS
//
// The network is trusted if the user says so (job.trust=network, or a UCX_TLS that names tcp), or the site: a
// file of root's that nobody else can write to, /etc/swale/trust, has the word `network` on a line of its
// own. Whoever reaches a port of UCX over TCP writes into the memory of a rank (docs/design/security.md);
// choosing devices is not trust.
//
// Threads: free functions.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "net/fabric/transport.h"
#include "net/job/job_options.h"

namespace swale::net {

// What one rank can say of the network. It travels as a word of 64 bits.
struct NetworkView {
  bool rdma = false;
  bool trusted = false;

  uint64_t word() const { return (rdma ? uint64_t{1} : 0) | (trusted ? uint64_t{2} : 0); }
  static NetworkView of_word(uint64_t word) { return {(word & 1) != 0, (word & 2) != 0}; }
};

using GetEnvironment = std::function<const char*(const char* name)>;
struct RdmaFolders {
  std::string ports = "/sys/class/infiniband";
  std::string devices = "/dev/infiniband";
};
// RDMA: a port is active, this process may open a device, and UCX_TLS and UCX_NET_DEVICES leave them to UCX.
NetworkView look_at_network(const JobOptions& options, const GetEnvironment& environment,
                            const RdmaFolders& rdma = {});

// Whether the site's file has the word. False with a reason if it is there and not believed. No file: false.
bool site_trusts_network(const std::string& path, std::string* why_not);

enum class Fabric { kLoopback, kUcx, kTls };

struct FabricChoice {
  Fabric fabric = Fabric::kUcx;
  Reach reach = Reach::kAnywhere;
  std::string why;  // for the log
};

// What is known of all ranks.
struct NetworkFacts {
  bool one_memory = false;  // MemoryProbe: all ranks share one
  Rank without_rdma = -1;   // the first rank whose node has none; -1: all have
  Rank without_trust = -1;  // the first rank that does not trust the network
};

// The same on all ranks. kInvalidArgument: job.transport is no fabric, or is ucx where anybody could write
// into memory.
Result<FabricChoice> choose_fabric(const std::string& transport, const NetworkFacts& facts);

}  // namespace swale::net
