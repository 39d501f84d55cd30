// UCX: the Transport between processes: shared memory inside a node; InfiniBand, RoCE or TCP between nodes.
// UCX 1.13 active messages, always eager, because credits bound the receiver's memory (Router) and a
// rendezvous would cost a round trip. docs/design/transport.md has the settings and the measurements behind
// them.
//
// Sites choose fabrics with UCX's own variables (UCX_TLS, UCX_NET_DEVICES); what we set, we set only where
// the user's variable is unset. The one exception: with Reach::kNode the fabric is POSIX shared memory alone.
//
// Threads: as Transport. UCX is entered by one thread at a time, under a lock of ours: the progress thread,
// and with Posting::kDirect whoever posts while the lock is free, for a peer that is connected.
// Format of the active message's header: u32 magic "SWU2" | u32 sender's rank | u64 the job's secret | u32
// kind (0 frame,
//   1 end, 2 hello, 3 knock: ucx_meeting.cc) | the frame's header, at most 64 bytes. Magic and secret are
//   compared before anything else is looked at. Messages that do not look so are dropped and counted.
#pragma once

#include <memory>

#include "net/fabric/seat.h"

namespace swale::net {

class UcxTransport : public SeatedTransport {
 public:
  static constexpr unsigned kActiveMessageId = 7;
};

Result<std::unique_ptr<UcxTransport>> ucx_transport(Rank rank, int32_t size,
                                                    const TransportOptions& options = {});

}  // namespace swale::net
