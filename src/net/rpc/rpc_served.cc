#include "net/rpc/rpc_served.h"

#include <algorithm>
#include <cassert>

#include "net/fabric/status_codec.h"
#include "net/rpc/rpc_calls.h"

namespace swale::net {
namespace {

template <class... Args>
Status broken(const Piece& piece, fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::kCorruption, Scope::kPeer, "a piece of kind {} for request {:x}: {}",
               static_cast<int>(piece.header.kind), piece.header.id,
               fmt::format(format, std::forward<Args>(args)...));
}

size_t cost_of(const Piece& piece) { return rpc_cost(piece.header.message_bytes, piece.header.extra); }

bool too_long(const Piece& piece, size_t most) {
  return piece.header.message_bytes > most || piece.header.extra > most;
}

}  // namespace

RpcServed::RpcServed(const RpcParams* params, RpcOutbox* outbox)
    : params_(*params), outbox_(*outbox), peers_(params->ranks) {}

// ---- pieces from a caller

RpcServed::Entry& RpcServed::add(Rank from, uint64_t id, RpcMethod method, size_t request_bytes,
                                 uint32_t response_bytes_max) {
  Entry& entry = entries_.take();
  entry.peer = from;
  entry.id = id;
  entry.method = method;
  entry.request_bytes = static_cast<uint32_t>(request_bytes);
  entry.response_bytes_max = response_bytes_max;
  entry.cost = rpc_cost(request_bytes, response_bytes_max);
  peer(from).entries.push_back(&entry);
  return entry;
}

Status RpcServed::on_request(Rank from, const Piece& piece) {
  Peer& caller = peer(from);
  const size_t cost = cost_of(piece);
  if (too_long(piece, params_.message_bytes_max)) return broken(piece, "it is too long");
  Entry* entry = nullptr;
  if (cost > params_.window_bytes) {
    SWALE_RETURN_IF_ERROR(granted_entry(from, piece, &entry));
  } else if (caller.held + cost > params_.window_bytes) {
    return broken(piece, "it costs {} bytes, {} of the window of {} are in use (same options on all ranks?)",
                  cost, caller.held, params_.window_bytes);
  } else {
    entry = &add(from, piece.header.id, piece.header.method, piece.header.message_bytes, piece.header.extra);
    entry->held = true;
    caller.held += cost;
    held_ += cost;
  }
  if (piece.body.size() == piece.header.message_bytes) {  // nearly always
    entry->request.assign(piece.body);
    entry->state = State::kReady;
    ready_.push_back(entry);
    return {};
  }
  entry->request.reserve(piece.header.message_bytes);
  entry->state = State::kReceiving;
  caller.receiving.push_back(entry);
  receive(entry, piece.body);
  return {};
}

// Finds the entry that was granted for this piece.
Status RpcServed::granted_entry(Rank from, const Piece& piece, Entry** found) {
  for (Entry* entry = peer(from).entries.front(); entry != nullptr; entry = entry->of_peer.next) {
    if (entry->id != piece.header.id || entry->state != State::kGranted) continue;
    if (entry->method != piece.header.method || entry->request_bytes != piece.header.message_bytes ||
        entry->response_bytes_max != piece.header.extra) {
      return broken(piece, "it is not the request that was offered");
    }
    *found = entry;
    return {};
  }
  return broken(piece, "it costs {} bytes, more than the window of {}, and was not granted", cost_of(piece),
                params_.window_bytes);
}

Status RpcServed::on_more_request(Rank from, const Piece& piece) {
  Entry* entry = peer(from).receiving.front();
  while (entry != nullptr && entry->id != piece.header.id) entry = Queue::next(*entry);
  if (entry == nullptr || piece.header.extra != entry->request.size() ||
      piece.header.message_bytes != entry->request_bytes) {
    return broken(piece, "it continues no request");
  }
  receive(entry, piece.body);
  return {};
}

void RpcServed::receive(Entry* entry, Bytes body) {
  entry->request.append(body);
  if (entry->request.size() < entry->request_bytes) return;
  leave_queue(entry);
  entry->state = State::kReady;
  ready_.push_back(entry);
}

Status RpcServed::on_offer(Rank from, const Piece& piece) {
  Peer& caller = peer(from);
  if (too_long(piece, params_.message_bytes_max)) return broken(piece, "it is too long");
  if (cost_of(piece) <= params_.window_bytes) return broken(piece, "it fits into the window");
  if (caller.offers >= kRpcOffersMax) return broken(piece, "{} others are offered already", caller.offers);
  Entry& entry =
      add(from, piece.header.id, piece.header.method, piece.header.message_bytes, piece.header.extra);
  entry.state = State::kOffered;
  ++caller.offers;
  offers_.push_back(&entry);
  grant_offers();
  return {};
}

// In the order in which they came: a request that needs much is not overtaken for ever.
void RpcServed::grant_offers() {
  while (!offers_.empty() && granted_ + offers_.front()->cost <= params_.granted_bytes_max) {
    Entry* entry = offers_.front();
    leave_queue(entry);
    granted_ += entry->cost;
    entry->granted = true;
    entry->state = State::kGrantDue;
    outbox_.push(entry);
  }
}

// Of a request that is answered already the caller will hear all the same.
void RpcServed::on_cancel(Rank from, uint64_t id) {
  Entry* entry = peer(from).entries.front();
  while (entry != nullptr && entry->id != id) entry = entry->of_peer.next;
  if (entry == nullptr || entry->unwanted) return;
  entry->unwanted = true;
  if (entry->state == State::kTaken) return;  // the service answers it
  if (entry->state == State::kReplying && entry->failing) return;
  leave_queue(entry);
  outbox_.remove(entry);
  answer(entry, error(Code::kAborted, Scope::kOperation, "cancelled"));
}

// ---- the service

void RpcServed::take_requests(size_t max, std::vector<RpcRequest>* out) {
  const size_t wish = out->size() + std::min(max, entries_.size());
  if (out->capacity() < wish) out->reserve(std::max(wish, 2 * out->capacity()));
  for (size_t taken = 0; taken < max && !ready_.empty();) {
    Entry* entry = ready_.front();
    if (entry->method >= params_.methods.size()) {
      leave_queue(entry);
      answer(entry, error(Code::kUnsupported, Scope::kOperation, "method {} is unknown, there are {}",
                          entry->method, params_.methods.size()));
      continue;
    }
    RpcRequest& request = out->emplace_back();
    request.token = ReplyToken{entry->handle};
    request.from = entry->peer;
    request.method = entry->method;
    request.payload = std::move(entry->request);
    request.response_bytes_max = entry->response_bytes_max;
    leave_queue(entry);
    entry->state = State::kTaken;
    ++taken;
  }
}

bool RpcServed::wanted(ReplyToken token) {
  const Entry* entry = entries_.find(static_cast<uint64_t>(token));
  return entry != nullptr && entry->state == State::kTaken && !entry->unwanted;
}

bool RpcServed::reply(ReplyToken token, Result<RpcPayload>&& response) {
  Entry* entry = entries_.find(static_cast<uint64_t>(token));
  if (entry == nullptr || entry->state != State::kTaken) return false;
  if (entry->forsaken) {
    forget(entry);
    return false;
  }
  if (entry->unwanted) {
    answer(entry, error(Code::kAborted, Scope::kOperation, "cancelled"));
    return false;
  }
  if (response.ok() && response->size() > entry->response_bytes_max) {
    response = error(Code::kResourceExhausted, Scope::kOperation,
                     "the response has {} bytes, the caller takes {} at most", response->size(),
                     entry->response_bytes_max);
  }
  answer(entry, std::move(response));
  return true;
}

void RpcServed::keep(ReplyToken token) {
  Entry* entry = entries_.find(static_cast<uint64_t>(token));
  if (entry != nullptr && entry->state == State::kReplying) entry->response.keep(entry->sent);
}

void RpcServed::answer(Entry* entry, Result<RpcPayload>&& response) {
  std::string().swap(entry->request);
  entry->failing = !response.ok();
  if (response.ok()) {
    entry->response = *std::move(response);
  } else {
    entry->why = response.status();
    entry->response.clear();
  }
  entry->state = State::kReplying;
  outbox_.push(entry);
}

// ---- the end of a request

void RpcServed::leave_queue(Entry* entry) {
  if (!Queue::listed(*entry)) return;
  if (entry->state == State::kOffered) {
    offers_.remove(entry);
    --peer(entry->peer).offers;
  } else if (entry->state == State::kReady) {
    ready_.remove(entry);
  } else {
    peer(entry->peer).receiving.remove(entry);
  }
}

void RpcServed::forget(Entry* entry) {
  Peer& caller = peer(entry->peer);
  leave_queue(entry);
  outbox_.remove(entry);
  if (entry->granted) granted_ -= entry->cost;
  if (entry->held) {
    held_ -= entry->cost;
    caller.held -= entry->cost;
  }
  caller.entries.remove(entry);
  entries_.release(entry);
  grant_offers();
}

void RpcServed::on_down(Rank rank) {
  Peer& caller = peer(rank);
  Entry* next = nullptr;
  for (Entry* entry = caller.entries.front(); entry != nullptr; entry = next) {
    next = entry->of_peer.next;
    entry->unwanted = true;
    if (entry->state == State::kTaken) {
      entry->forsaken = true;  // until the service replies
    } else {
      forget(entry);
    }
  }
}

void RpcServed::fail() {
  for (Rank rank = 0; rank < peers_.ranks(); ++rank) on_down(rank);
}

// ---- sending

bool RpcServed::write(RpcOutgoing* outgoing, RpcFrameWriter* frame) {
  auto* entry = static_cast<Entry*>(outgoing);
  PieceHeader header;
  header.id = entry->id;
  if (entry->state == State::kGrantDue) {
    if (frame->share(0) < 0) return false;
    header.kind = PieceKind::kGrant;
    frame->write(header, {});
    entry->state = State::kGranted;
    outbox_.remove(entry);
    return true;
  }
  assert(entry->state == State::kReplying);
  if (entry->failing) {
    const std::string why = encode_status(entry->why);
    if (frame->share(why.size()) < 0) return false;
    header.kind = PieceKind::kFailure;
    header.message_bytes = header.piece_bytes = static_cast<uint32_t>(why.size());
    frame->write(header, why);
    forget(entry);
    return true;
  }
  const Bytes response = entry->response.bytes();
  const int64_t share = frame->share(response.size() - entry->sent);
  if (share < 0) return false;
  header.kind = entry->begun ? PieceKind::kMoreResponse : PieceKind::kResponse;
  header.message_bytes = static_cast<uint32_t>(response.size());
  header.piece_bytes = static_cast<uint32_t>(share);
  header.extra = entry->sent;
  frame->write(header, response.substr(entry->sent, header.piece_bytes));
  entry->begun = true;
  entry->sent += header.piece_bytes;
  if (entry->sent == response.size()) {
    forget(entry);
  } else {
    outbox_.remove(entry);
    outbox_.push(entry);  // others take their turn
  }
  return true;
}

void RpcServed::send_to_self(RpcOutgoing* outgoing, RpcCalls* calls, Nanos now) {
  auto* entry = static_cast<Entry*>(outgoing);
  assert(entry->state == State::kReplying);
  const uint64_t id = entry->id;
  Result<std::string> response =
      entry->failing ? Result<std::string>(entry->why) : Result<std::string>(entry->response.take());
  forget(entry);
  calls->on_own_response(id, std::move(response), now);
}

void RpcServed::on_own_request(uint64_t id, RpcMethod method, std::string payload,
                               uint32_t response_bytes_max) {
  Entry& entry = add(params_.rank, id, method, payload.size(), response_bytes_max);
  entry.request = std::move(payload);
  entry.state = State::kReady;
  ready_.push_back(&entry);
}

}  // namespace swale::net
