#include "net/rpc/rpc_calls.h"

#include <algorithm>
#include <cassert>

#include "net/fabric/status_codec.h"
#include "net/rpc/rpc_served.h"

namespace swale::net {
namespace {

Status broken(const Piece& piece, const char* what) {
  return error(Code::kCorruption, Scope::kPeer, "a piece of kind {} for call {:x}: {}",
               static_cast<int>(piece.header.kind), piece.header.id, what);
}

}  // namespace

RpcCalls::RpcCalls(const RpcParams* params, RpcOutbox* outbox)
    : params_(*params), outbox_(*outbox), peers_(params->ranks) {}

bool RpcCalls::large(const Call& call) const {
  return call.cost > params_.window_bytes && call.peer != params_.rank;
}

Status RpcCalls::ended(const Call& call, Nanos now, Code code, Scope scope, std::string_view before,
                       std::string_view after, std::string_view why) const noexcept {
  const fmt::format_int number(call.method);
  const std::string_view method = call.method < params_.methods.size()
                                      ? std::string_view(params_.methods[call.method])
                                      : std::string_view(number.data(), number.size());
  return error(code, scope, "rank {} (host {}), asked for \"{}\"{}{:.3f} s{}{}", call.peer,
               params_.host_of(call.peer), method, before, to_seconds(now - call.asked_at), after, why);
}

Status RpcCalls::failed(const Call& call, const Status& why, Nanos now) const noexcept {
  return ended(call, now, why.code(), why.scope(), ", ", " ago: ", why.message());
}

// ---- what the caller does

Status RpcCalls::has_capacity(size_t calls, size_t bytes) const {
  if (open_calls_ + calls <= params_.calls_max && open_bytes_ + bytes <= params_.calls_bytes_max) return {};
  return error(Code::kResourceExhausted, Scope::kOperation,
               "rank {}: {} more calls of {} bytes: {} calls of {} bytes are open, limits {} and {}",
               params_.rank, calls, bytes, open_calls_, open_bytes_, params_.calls_max,
               params_.calls_bytes_max);
}

Result<CallId> RpcCalls::start(RpcCall&& call, Nanos now) {
  const size_t cost = rpc_cost(call.payload.size(), call.response_bytes_max);
  SWALE_RETURN_IF_ERROR(has_capacity(1, cost));
  if (done_.capacity() <= open_calls_) done_.reserve(2 * open_calls_ + 8);
  Call& entry = calls_.take();
  const CallId id{entry.handle};
  ++open_calls_;
  open_bytes_ += cost;
  entry.peer = call.to;
  entry.method = call.method;
  entry.response_bytes_max = call.response_bytes_max;
  entry.request_bytes = static_cast<uint32_t>(call.payload.size());
  entry.cost = cost;
  entry.asked_at = now;
  entry.deadline = call.deadline;
  entry.owner = call.owner;
  entry.tag = call.tag;
  entry.payload = std::move(call.payload);
  entry.into = call.into.empty() ? std::span<MutableBytes>() : call.into;
  earliest_ = std::min(earliest_, call.deadline);
  Peer& to = peer(call.to);
  to.calls.push_back(&entry);
  (large(entry) ? to.large : to.eager).push_back(&entry);
  if (!failure_.ok() || !to.down.ok()) {
    end_all(call.to, !failure_.ok() ? failure_ : to.down, now);
  } else {
    admit(call.to);
  }
  return id;
}

// Lets calls leave that wait for the window or for an offer.
void RpcCalls::admit(Rank rank) {
  Peer& to = peer(rank);
  while (!to.eager.empty()) {
    Call* next = to.eager.front();
    if (rank != params_.rank && to.under_way + next->cost > params_.window_bytes) break;
    to.eager.pop_front();
    to.under_way += next->cost;
    next->state = State::kSending;
    outbox_.push(next);
  }
  while (!to.large.empty() && to.offers < kRpcOffersMax) {
    Call* next = to.large.pop_front();
    ++to.offers;
    next->offer_open = true;
    next->state = State::kOfferDue;
    outbox_.push(next);
  }
}

Status RpcCalls::cancelled(const Call& call, Nanos now) const noexcept {
  return ended(call, now, Code::kAborted, Scope::kOperation, ": cancelled after ");
}

bool RpcCalls::cancel(CallId id, Nanos now) noexcept {
  Call* call = calls_.find(static_cast<uint64_t>(id));
  if (call == nullptr || call->told) return false;
  abandon(call, cancelled(*call, now));
  return true;
}

void RpcCalls::cancel_all(uint64_t owner, Nanos now) noexcept {
  calls_.for_each([&](Call& call) {
    if (!call.told && call.owner == owner) abandon(&call, cancelled(call, now));
  });
}

void RpcCalls::tick(Nanos now) noexcept {
  if (now < earliest_) return;
  earliest_ = kForever;
  calls_.for_each([&](Call& call) {
    if (call.told) return;
    if (call.deadline > now) {
      earliest_ = std::min(earliest_, call.deadline);
      return;
    }
    abandon(&call, ended(call, now, Code::kDeadlineExceeded, Scope::kOperation, ": no answer within "));
  });
}

void RpcCalls::drop_taken(size_t count) {
  for (size_t i = 0; i < count; ++i) open_bytes_ -= done_[i].cost;
  open_calls_ -= count;
  done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(count));
}

// ---- completion

void RpcCalls::tell(Call* call, Result<std::string>&& response) {
  assert(!call->told && done_.size() < done_.capacity());
  call->told = true;
  call->payload.clear();
  done_.push_back(
      {{CallId{call->handle}, call->peer, call->method, call->owner, call->tag, std::move(response)},
       call->cost});
}

// The caller hears of the call now; the server, if it knows of the call, hears that nobody waits.
void RpcCalls::abandon(Call* call, const Status& why) {
  tell(call, why);
  std::string().swap(call->response);  // an assignment of {} would keep its memory
  const bool unknown_there = call->state == State::kWaiting || call->state == State::kOfferDue ||
                             (call->state == State::kSending && !call->begun && !large(*call));
  if (unknown_there) return finish(call);
  call->cancel_due = true;
  outbox_.push(call);
}

// The server is done with the call, or has never known it.
void RpcCalls::finish(Call* call) {
  const Rank rank = call->peer;
  Peer& to = peer(rank);
  if (!large(*call) && call->state != State::kWaiting) to.under_way -= call->cost;
  if (call->offer_open) --to.offers;
  forget(call);
  admit(rank);
}

void RpcCalls::forget(Call* call) {
  Peer& to = peer(call->peer);
  outbox_.remove(call);
  if (WaitingCalls::listed(*call)) (large(*call) ? to.large : to.eager).remove(call);
  to.calls.remove(call);
  calls_.release(call);
}

// All calls to the peer fail, those too that wait.
void RpcCalls::end_all(Rank rank, const Status& why, Nanos now) noexcept {
  Peer& to = peer(rank);
  while (!to.calls.empty()) {
    Call* call = to.calls.front();
    if (!call->told) tell(call, failed(*call, why, now));
    forget(call);
  }
  to.under_way = 0;
  to.offers = 0;
}

void RpcCalls::on_down(Rank rank, const Status& why, Nanos now) noexcept {
  if (!peer(rank).down.ok()) return;
  peer(rank).down = error(Code::kUnavailable, Scope::kPeer, "{}", why.message());
  end_all(rank, peer(rank).down, now);
}

void RpcCalls::fail(const Status& why, Nanos now) noexcept {
  if (!failure_.ok()) return;
  failure_ = error(Code::kAborted, Scope::kFatal, "{}", why.message());
  for (Rank rank = 0; rank < peers_.ranks(); ++rank) end_all(rank, failure_, now);
}

// ---- pieces from a server

// The call that a server may answer with this piece.
Result<RpcCalls::Call*> RpcCalls::answered(Rank from, const Piece& piece) {
  Call* call = calls_.find(piece.header.id);
  if (call == nullptr || call->peer != from) return broken(piece, "there is no such call");
  if (call->state != State::kSent) return broken(piece, "the request has not been sent yet");
  return call;
}

Status RpcCalls::on_response(Rank from, const Piece& piece) {
  SWALE_ASSIGN_OR_RETURN(Call* const call, answered(from, piece));
  if (call->receiving) return broken(piece, "a second response");
  if (piece.header.message_bytes > call->response_bytes_max) {
    return broken(piece, "the response is longer than the caller allows");
  }
  const bool to_places = call->into.data() != nullptr;
  if (piece.body.size() == piece.header.message_bytes && !to_places) {  // nearly always
    if (!call->told) tell(call, std::string(piece.body));
    finish(call);
    return {};
  }
  if (!call->told && !to_places) call->response.reserve(piece.header.message_bytes);
  call->receiving = true;
  call->response_bytes = piece.header.message_bytes;
  receive(call, piece.body);
  return {};
}

Status RpcCalls::on_more_response(Rank from, const Piece& piece) {
  SWALE_ASSIGN_OR_RETURN(Call* const call, answered(from, piece));
  if (!call->receiving || piece.header.extra != call->received ||
      piece.header.message_bytes != call->response_bytes) {
    return broken(piece, "it does not continue the response");
  }
  receive(call, piece.body);
  return {};
}

void RpcCalls::receive(Call* call, Bytes body) {
  call->received += static_cast<uint32_t>(body.size());
  if (!call->told) keep(call, body);
  if (call->received < call->response_bytes) return;
  if (!call->told) tell(call, std::move(call->response));
  finish(call);
}

// RpcCore::check and on_response have seen that there is space for all of it.
void RpcCalls::keep(Call* call, Bytes body) {
  if (call->into.data() == nullptr) {
    call->response.append(body);
    return;
  }
  while (!body.empty()) {
    MutableBytes& place = call->into.front();
    const size_t part = std::min(place.size(), body.size());
    std::copy_n(body.data(), part, place.data());
    place = place.subspan(part);
    body.remove_prefix(part);
    if (place.empty()) call->into = call->into.subspan(1);
  }
}

Status RpcCalls::on_failure(Rank from, const Piece& piece, Nanos now) {
  SWALE_ASSIGN_OR_RETURN(Call* const call, answered(from, piece));
  Status why;
  if (!decode_status(piece.body, &why).ok()) return broken(piece, "its bytes are no status");
  if (why.ok()) return broken(piece, "a failure without a cause");
  if (!call->told) tell(call, failed(*call, why, now));
  finish(call);
  return {};
}

Status RpcCalls::on_grant(Rank from, const Piece& piece) {
  Call* call = calls_.find(piece.header.id);
  if (call == nullptr || call->peer != from || !call->offer_open || call->state == State::kOfferDue) {
    return broken(piece, "nothing was offered");
  }
  call->offer_open = false;
  --peer(from).offers;
  if (!call->told) {
    call->state = State::kSending;
    outbox_.push(call);
  }
  admit(from);
  return {};
}

// ---- sending

bool RpcCalls::write(RpcOutgoing* entry, RpcFrameWriter* frame) {
  auto* call = static_cast<Call*>(entry);
  PieceHeader header;
  header.id = call->handle;
  if (call->cancel_due) {
    if (frame->share(0) < 0) return false;
    header.kind = PieceKind::kCancel;
    frame->write(header, {});
    call->cancel_due = false;
    call->state = State::kSent;
    outbox_.remove(call);
    return true;
  }
  header.message_bytes = call->request_bytes;
  if (call->state == State::kOfferDue || !call->begun) {
    header.method = call->method;
    header.extra = call->response_bytes_max;
  }
  if (call->state == State::kOfferDue) {
    if (frame->share(0) < 0) return false;
    header.kind = PieceKind::kOffer;
    frame->write(header, {});
    call->state = State::kOffered;
    outbox_.remove(call);
    return true;
  }
  assert(call->state == State::kSending);
  const int64_t share = frame->share(call->request_bytes - call->sent);
  if (share < 0) return false;
  header.kind = call->begun ? PieceKind::kMoreRequest : PieceKind::kRequest;
  if (call->begun) header.extra = call->sent;
  header.piece_bytes = static_cast<uint32_t>(share);
  frame->write(header, call->payload.bytes().substr(call->sent, header.piece_bytes));
  call->begun = true;
  call->sent += header.piece_bytes;
  outbox_.remove(call);
  if (call->sent < call->request_bytes) {
    outbox_.push(call);  // others take their turn
  } else {
    call->state = State::kSent;
    call->payload.clear();
  }
  return true;
}

void RpcCalls::send_to_self(RpcOutgoing* entry, RpcServed* served) {
  auto* call = static_cast<Call*>(entry);
  outbox_.remove(call);
  if (call->cancel_due) {
    call->cancel_due = false;
    served->on_cancel(params_.rank, call->handle);
    return;
  }
  served->on_own_request(call->handle, call->method, call->payload.take(), call->response_bytes_max);
  call->begun = true;
  call->state = State::kSent;
}

void RpcCalls::on_own_response(uint64_t id, Result<std::string> response, Nanos now) {
  Call* call = calls_.find(id);
  assert(call != nullptr && call->peer == params_.rank);
  if (!call->told && response.ok()) {
    if (call->into.data() != nullptr) {
      keep(call, *response);
      response->clear();
    }
    tell(call, std::move(response));
  }
  if (!call->told) tell(call, failed(*call, response.status(), now));
  finish(call);
}

}  // namespace swale::net
