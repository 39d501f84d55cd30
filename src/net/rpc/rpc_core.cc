#include "net/rpc/rpc_core.h"

#include <cassert>

namespace swale::net {

Status RpcCore::check(const RpcParams& params) {
  if (params.rank < 0 || params.rank >= params.ranks) {
    return invalid_argument("rank {} of {}", params.rank, params.ranks);
  }
  if (params.frame_bytes < kRpcFrameBytesMin) {
    return invalid_argument("frames of {} bytes: at least {}", params.frame_bytes, kRpcFrameBytesMin);
  }
  if (params.window_bytes < kRpcCallBytes) {
    return invalid_argument("a window of {} bytes: at least {}", params.window_bytes, kRpcCallBytes);
  }
  if (params.message_bytes_max > kRpcMessageBytesMax) {
    return invalid_argument("messages of {} bytes: at most {}", params.message_bytes_max,
                            kRpcMessageBytesMax);
  }
  if (const size_t largest = rpc_cost(params.message_bytes_max, params.message_bytes_max);
      params.granted_bytes_max < largest || params.calls_bytes_max < largest) {
    return invalid_argument("{} bytes for granted requests and {} for calls: at least {}",
                            params.granted_bytes_max, params.calls_bytes_max, largest);
  }
  if (params.calls_max == 0) return invalid_argument("no call is allowed");
  return {};
}

RpcCore::RpcCore(RpcParams params)
    : params_(std::move(params)),
      outbox_(params_.ranks),
      calls_(&params_, &outbox_),
      served_(&params_, &outbox_) {
  assert(check(params_).ok());
}

// ---- calling

Status RpcCore::check(const RpcCall& call) const {
  if (call.to < 0 || call.to >= params_.ranks) {
    return invalid_argument("a call to rank {} of {}", call.to, params_.ranks);
  }
  const size_t most = params_.message_bytes_max;
  if (call.payload.size() > most || call.response_bytes_max > most) {
    return invalid_argument("a call with {} bytes, and at most {} in the response: at most {}",
                            call.payload.size(), call.response_bytes_max, most);
  }
  if (call.into.empty()) return {};
  size_t places = 0;
  for (const MutableBytes& each : call.into) places += each.size();
  if (places < call.response_bytes_max)
    return invalid_argument("a call with places for {} bytes, and at most {} in the response", places,
                            call.response_bytes_max);
  return {};
}

Result<CallId> RpcCore::call(RpcCall&& call, Nanos now) {
  SWALE_RETURN_IF_ERROR(check(call));
  SWALE_ASSIGN_OR_RETURN(const CallId id, calls_.start(std::move(call), now));
  send_to_self(now);
  return id;
}

Result<std::vector<CallId>> RpcCore::call_many(std::span<const Rank> ranks, const RpcCall& call, Nanos now) {
  RpcCall each = call;
  each.payload = std::make_shared<const std::string>(each.payload.take());
  if (!call.into.empty()) return invalid_argument("a call to {} ranks has one place", ranks.size());
  std::vector<CallId> ids;
  ids.reserve(ranks.size());
  for (const Rank rank : ranks) {
    each.to = rank;
    SWALE_RETURN_IF_ERROR(check(each));
  }
  SWALE_RETURN_IF_ERROR(calls_.has_capacity(
      ranks.size(), ranks.size() * rpc_cost(each.payload.size(), each.response_bytes_max)));
  for (const Rank rank : ranks) {
    each.to = rank;
    SWALE_ASSIGN_OR_RETURN(const CallId id, calls_.start(RpcCall(each), now));
    ids.push_back(id);
  }
  send_to_self(now);
  return ids;
}

bool RpcCore::cancel(CallId id, Nanos now) {
  const bool cancelled = calls_.cancel(id, now);
  send_to_self(now);
  return cancelled;
}

void RpcCore::cancel_all(uint64_t owner, Nanos now) {
  calls_.cancel_all(owner, now);
  send_to_self(now);
}

void RpcCore::take_completions(std::vector<RpcCompletion>* out) {
  take_completions([out](RpcCompletion&& each) { out->push_back(std::move(each)); });
}

// ---- serving

void RpcCore::take_requests(size_t max, std::vector<RpcRequest>* out, Nanos now) {
  served_.take_requests(max, out);
  send_to_self(now);  // refusals
}

bool RpcCore::reply(ReplyToken token, Result<RpcPayload>&& response, Nanos now) {
  const bool heard = served_.reply(token, std::move(response));
  send_to_self(now);
  return heard;
}

// What this rank has for itself needs no frame.
void RpcCore::send_to_self(Nanos now) {
  while (RpcOutgoing* next = outbox_.front(params_.rank)) {
    if (next->is_call) {
      calls_.send_to_self(next, &served_);
    } else {
      served_.send_to_self(next, &calls_, now);
    }
  }
}

// ---- frames

size_t RpcCore::fill_frame(Rank peer, MutableBytes frame) {
  assert(frame.size() == params_.frame_bytes);
  RpcFrameWriter writer(frame);
  for (size_t pieces = 0; pieces < kRpcFramePiecesMax; ++pieces) {
    RpcOutgoing* next = outbox_.front(peer);
    if (next == nullptr) break;
    if (!(next->is_call ? calls_.write(next, &writer) : served_.write(next, &writer))) break;
  }
  return writer.used();
}

Status RpcCore::on_frame(Rank from, Bytes frame, Nanos now) {
  if (from < 0 || from >= params_.ranks || from == params_.rank) {
    return error(Code::kCorruption, Scope::kPeer, "rank {}: a frame claims to come from rank {} of {}",
                 params_.rank, from, params_.ranks);
  }
  const auto in_frame = [&](const Status& status, size_t at) {
    return error(status.code(), status.scope(),
                 "rank {}: a frame of requests from rank {} (host {}), byte {}: {}", params_.rank, from,
                 params_.host_of(from), at, status.message());
  };
  if (!calls_.hears(from)) return {};
  Bytes rest = frame;
  do {
    const size_t at = frame.size() - rest.size();
    const Result<Piece> piece = take_piece(&rest);
    if (!piece.ok()) return in_frame(piece.status(), at);
    if (const Status status = take(from, *piece, now); !status.ok()) return in_frame(status, at);
  } while (!rest.empty());
  return {};
}

Status RpcCore::take(Rank from, const Piece& piece, Nanos now) {
  switch (piece.header.kind) {
    case PieceKind::kRequest:
      return served_.on_request(from, piece);
    case PieceKind::kMoreRequest:
      return served_.on_more_request(from, piece);
    case PieceKind::kOffer:
      return served_.on_offer(from, piece);
    case PieceKind::kCancel:
      served_.on_cancel(from, piece.header.id);
      return {};
    case PieceKind::kResponse:
      return calls_.on_response(from, piece);
    case PieceKind::kMoreResponse:
      return calls_.on_more_response(from, piece);
    case PieceKind::kFailure:
      return calls_.on_failure(from, piece, now);
    case PieceKind::kGrant:
      return calls_.on_grant(from, piece);
  }
  return error(Code::kInternal, Scope::kPeer, "a piece of no kind");
}

// ---- events

void RpcCore::on_down(Rank peer, const Status& why, Nanos now) {
  assert(peer != params_.rank);
  calls_.on_down(peer, why, now);
  served_.on_down(peer);
}

void RpcCore::fail(const Status& why, Nanos now) {
  calls_.fail(why, now);
  served_.fail();
}

void RpcCore::tick(Nanos now) {
  calls_.tick(now);
  send_to_self(now);
}

}  // namespace swale::net
