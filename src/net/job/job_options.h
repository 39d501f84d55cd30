// JobOptions: how a job is opened. What users can say of it stands in job_settings.cc.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace swale::net {

// How the records of a massive directory go to their home ranks: each rank to each, or by three hops
// (threehop_router.h). kAuto: directly where the frames for that fit into a quarter of the directory's
// memory.
enum class RouteChoice : uint8_t { kAuto, kDirect, kThreeHop };

struct JobOptions {
  // "ucx", "tls", "loopback" (threads of one process, tests), "auto": fabric_choice.h
  std::string transport = "auto";
  bool trusts_network = false;   // nobody but this user can reach the ports of the job's nodes
  std::string posting = "auto";  // "queue", "direct", "auto": by what the ranks of this node are joined
  // How long a thread that expects an answer, or the next request, polls before it sleeps; 0: never. Never
  // either where the node has more ranks of the job than processors.
  Nanos poll = 100'000;
  Nanos silence_deadline = 30'000'000'000;
  Nanos heartbeat_interval = 1'000'000'000;
  Nanos close_deadline = 30'000'000'000;
  Nanos collective_deadline = 600'000'000'000;
  RouteChoice route = RouteChoice::kAuto;  // all ranks give the same
  // For a benchmark's comparison only, and no option: a job on one node opens ports, as it did before it had
  // a choice.
  bool listens_on_one_node = false;
  // As that: the transport "tls" neither encrypts nor asks who its peers are.
  bool in_clear = false;
  std::string node;  // what ranks of one machine have in common; "": this_machine (topology.h)
  // What all open directories of this process may take together, as far as this job opens them; 0: as Swale
  // chooses.
  uint64_t memory_bytes = 0;
};

}  // namespace swale::net
