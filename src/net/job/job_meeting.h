// What the ranks of a job tell each other through the Bootstrap before there is a transport, and the
// transport that they then join.
//
// Threads: one at a time per job; every function is collective. Errors: what one rank cannot do fails all, by
// name.
#pragma once

#include <cstdint>
#include <memory>

#include "net/fabric/address_book.h"
#include "net/fabric/transport.h"
#include "net/job/fabric_choice.h"
#include "net/job/job_options.h"
#include "net/meeting/bootstrap.h"
#include "net/meeting/node_map.h"

namespace swale::net {

struct JobMeeting {
  uint64_t secret = 0;  // drawn by rank 0
  JobKey key;           // the same
  std::shared_ptr<const NodeMap> node_map;
  Posting posting = Posting::kQueue;
  Nanos poll = 0;  // TransportOptions::poll
  FabricChoice fabric;
};

// All ranks tell their version, what they must have in common, their machine and what they know of the
// network; rank 0 gives the job's secret and key. If they are on one machine, they find out whether they
// share its memory (memory_probe.h), which decides how the fabric is made; a difference costs security or
// speed, so it is logged.
Result<JobMeeting> meet(Bootstrap& bootstrap, const JobOptions& options);

struct JoinedTransport {
  std::unique_ptr<Transport> transport;  // to be started
  std::shared_ptr<const AddressBook> book;
};
Result<JoinedTransport> make_transport(Bootstrap& bootstrap, const JobOptions& options,
                                       const JobMeeting& meeting);

}  // namespace swale::net
