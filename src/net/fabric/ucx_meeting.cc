// How two ranks meet over UCX.
//
// No frame is sent before both ranks know that each of them reaches the other, and UCX knows it too:
//   1. hello: a short message which UCX takes only once the connection takes messages, and never keeps for
//      later. Whoever gets one makes an endpoint of its own, and says hello over it.
//   2. knock: whoever has said hello and heard one sends a message that UCX does not send before its own
//      "wireup" with the peer is done. When it has left, what waited follows.
//
// Why: UCX begins a wireup with the first message that it cannot send at once. Its answer to a peer's request
// then waits in an endpoint that is still connecting, and if such an endpoint fails, or is closed by force,
// UCX up to 1.13 ends the process by an assertion (ucp_request_send_state_ff; later versions have dropped it,
// openucx/ucx pull request 8175). A link that goes down while ranks connect did that to 1 process in 20.
// After the hellos nothing has been sent over the connection that could stand in the way of an answer, so
// none ever waits.
//
// Over shared memory a wireup's answer still waits if the peer's queue is full of other ranks' frames; a peer
// that stops at that very moment, and is given up while they are there, could bring the assertion about. It
// was never seen.
#include <array>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "net/fabric/ucx_internal.h"

namespace swale::net::ucx_internal {

// Under fabric_mutex_, also from inside a callback of UCX: endpoints are made by meet.
void Ucx::begin_meeting(Peer* with) {
  if (with->meeting != Meeting::kNone || parting_) return;
  for (const Rank each : meeting_) {
    if (each == with->rank) return;
  }
  meeting_.push_back(with->rank);
}

// True if there may be more to do at once.
bool Ucx::meet() {
  if (parting_) return false;
  bool did = false;
  std::erase_if(meeting_, [&](Rank rank) REQUIRES(fabric_mutex_) {
    Peer& with = peer(rank);
    // One that lacks memory stays in the list, to be tried again.
    const Status status = contain([&]() REQUIRES(fabric_mutex_) {
      while (!with.down && !with.failing && advance(&with)) did = true;
    });
    if (!status.ok()) events_->on_failure(status);
    return with.down || with.failing || with.meeting == Meeting::kOpen;
  });
  return did;
}

// One step; false if it has to wait for UCX, or for the peer. After whatever gave UCX something to do, it is
// to be progressed again before the thread sleeps.
bool Ucx::advance(Peer* with) {
  switch (with->meeting) {
    case Meeting::kNone:
      return connect(with);
    case Meeting::kConnecting:
      return say_hello(with);
    case Meeting::kSaidHello:
      return with->greeted && knock(with);
    case Meeting::kKnocking:
      return false;
    case Meeting::kKnocked:
      open(with);
      return true;
    case Meeting::kOpen:
      return false;
  }
  return false;
}

bool Ucx::connect(Peer* to) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  const Result<RankAddress> found = book_->find(to->rank);
  if (!found.ok()) {
    fail(to, found.status().with_context(fmt::format("meeting rank {}", to->rank)));
    return false;
  }
  params.address = reinterpret_cast<const ucp_address_t*>(found->address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_endpoint_error;
  params.err_handler.arg = to;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &to->endpoint);
  if (status != UCS_OK) {
    to->endpoint = nullptr;
    fail(to, status, "connecting");
    return false;
  }
  to->meeting = Meeting::kConnecting;
  // A peer that meets us so late waits for our end as everybody does.
  if (winding_up_) say_end(to);
  return true;
}

bool Ucx::say_hello(Peer* to) {
  std::array<char, kPrefixBytes> hello;
  put_prefix(hello.data(), MessageKind::kHello);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(to->endpoint, kActiveMessageId, hello.data(), hello.size(), nullptr, 0, &param);
  const ucs_status_t status = UCS_PTR_STATUS(sent);
  if (status == UCS_ERR_NO_RESOURCE) return false;
  if (status != UCS_OK) {
    fail(to, status, "connecting");
    return false;
  }
  to->meeting = Meeting::kSaidHello;
  return true;
}

bool Ucx::knock(Peer* at) {
  Slot* const slot = posts_.take_slot();
  fill(slot, at->rank, MessageKind::kKnock, Bytes(), Bytes(), 0);
  ++in_flight_;
  at->meeting = Meeting::kKnocking;
  // on_send_done comes, possibly at once, and frees the request.
  if (!UCS_PTR_IS_PTR(start_send(slot))) finish(slot);
  return true;
}

void Ucx::open(Peer* to) {
  to->meeting = Meeting::kOpen;
  while (!to->waiting.empty()) {
    Slot* slot = to->waiting.pop_front();
    if (to->failing || !UCS_PTR_IS_PTR(start_send(slot))) finish(slot);
  }
}

}  // namespace swale::net::ucx_internal
