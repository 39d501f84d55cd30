// What the ranks of a job tell each other through the Bootstrap before there is a transport, and the transport that they
// then join.
//
// Threads: one at a time per job; every function is collective. Errors: what one rank cannot do fails all, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/bootstrap.h"
#include "net/job_options.h"
#include "net/node_map.h"
#include "net/topology.h"
#include "net/transport.h"

namespace swale::net {

struct JobMeeting {
  uint64_t secret = 0;             // drawn by rank 0
  std::vector<std::string> hosts;  // of every rank, for messages
  NodeCounts nodes;
  std::shared_ptr<const NodeMap> node_map;
  Posting posting = Posting::kQueue;
  Nanos poll = 0;  // TransportOptions::poll
};

// All ranks tell version, host, machine and a random number; rank 0's number becomes the secret.
Result<JobMeeting> meet(Bootstrap& bootstrap, const JobOptions& options);

struct JoinedTransport {
  std::unique_ptr<Transport> transport;  // to be started
  std::vector<std::string> addresses;    // of every rank
};
Result<JoinedTransport> make_transport(Bootstrap& bootstrap, const JobOptions& options,
                                       const JobMeeting& meeting);

}  // namespace swale::net
