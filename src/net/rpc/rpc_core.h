// RpcCore: requests and responses between the ranks of a job, this one included, as a passive machine: calls
// and replies in, frames in and out, completions and requests out. It has no thread, clock or lock.
//
//   user:    call, cancel, take_completions     service: take_requests, reply
//   frames:  next_ready, fill_frame, on_frame, on_down         time: tick
//
// Many small messages share a frame; a large one is cut into pieces. Responses come in any order, and so do
// requests at a server. A service takes requests and answers each of them once, when it likes, by its token.
//
// Memory is bounded on both sides by one account (rpc_types.h). A request costs request, largest response and
// kRpcCallBytes, from its call until its response has come. A caller keeps what it has under way at one
// server within window_bytes; the server counts the same and refuses more. Both sides see a request end in
// the same order, so no credits travel. A request that costs more than the window is offered first and sent
// when the server has granted it.
//
// Invariants: each call completes exactly once (rpc_types.h); each request that a service takes is answered
// once at most;
//   held_bytes() <= size * window_bytes + granted_bytes_max, and requests of this rank to itself, which
//   calls_bytes_max bounds.
// Threads: none of its own; the owner serialises calls.
// Errors: take_completions and take_requests that throw std::bad_alloc have done nothing. After any other
// call that
//   throws the core is to be given up (fail).
// Format: rpc_format.h. Limits: kRpcMessageBytesMax bytes a message; 2^16 methods; RpcParams.
#pragma once

#include <span>
#include <vector>

#include "net/rpc/rpc_calls.h"
#include "net/rpc/rpc_outbox.h"
#include "net/rpc/rpc_served.h"
#include "net/rpc/rpc_types.h"

namespace swale::net {

// A frame is one event at its receiver, and answers leave after the event. So many requests take the receiver
// some 30 us, in which the sender prepares the next frame, and neither side polls in vain (JobOptions::poll
// is 100 us) and goes to sleep. Larger frames would save less than 10 ns a message.
inline constexpr size_t kRpcFramePiecesMax = 96;

class RpcCore {
 public:
  // kInvalidArgument for limits that can not work.
  static Status check(const RpcParams& params);

  explicit RpcCore(RpcParams params);  // requires check
  RpcCore(const RpcCore&) = delete;

  // -- Calling
  // Begins a call. Its failure, also that the peer is down, comes as a completion. kInvalidArgument: no such
  // rank, or a message that is too long; kResourceExhausted: as many calls are open as may be: take
  // completions, then try again.
  Result<CallId> call(RpcCall&& call, Nanos now);
  // One call to each of `ranks`, with the same payload, method, owner and tag: all of them or none.
  Result<std::vector<CallId>> call_many(std::span<const Rank> ranks, const RpcCall& call, Nanos now);
  // Completes the call now, as kAborted. The server is told; it may have done what was asked. False: complete
  // already.
  bool cancel(CallId id, Nanos now);
  // The same for all calls of an owner.
  void cancel_all(uint64_t owner, Nanos now);
  // Appends what has completed.
  void take_completions(std::vector<RpcCompletion>* out);
  // Calls take(RpcCompletion&&) for each. If `take` throws, that completion and those after it are kept.
  template <class Take>
  void take_completions(const Take& take) NO_THREAD_SAFETY_ANALYSIS {
    calls_.take_completions(take);
  }
  bool any_complete() const { return calls_.any_complete(); }
  // Whether `call` would find capacity.
  Status has_capacity(size_t calls, size_t bytes) const { return calls_.has_capacity(calls, bytes); }

  // -- Serving
  // Appends at most `max` requests, in the order in which they came.
  void take_requests(size_t max, std::vector<RpcRequest>* out, Nanos now);
  bool any_request() const { return served_.any_request(); }
  // Answers a request that was taken. False: nobody waits for it any more, or it was answered before.
  bool reply(ReplyToken token, Result<RpcPayload>&& response, Nanos now);
  // After a reply with RpcPayload::lent(): what no frame has taken yet is copied.
  void keep(ReplyToken token) { served_.keep(token); }
  // Whether the caller still waits: false for a request that was cancelled or whose caller is gone. Reply all
  // the same.
  bool wanted(ReplyToken token) { return served_.wanted(token); }

  // -- Frames
  // The peers that may have a frame, each once, in turn: call next_ready so many times.
  size_t ready_count() const { return outbox_.ready_count(); }
  Rank next_ready() { return outbox_.next_ready(); }  // -1: that one has nothing
  bool has_frame(Rank peer) const { return outbox_.front(peer) != nullptr; }
  // Fills a frame of params.frame_bytes for the peer; returns the bytes used, at least 1 if has_frame.
  size_t fill_frame(Rank peer, MutableBytes frame);
  // A frame has come. kCorruption (scope peer): the peer breaks the protocol and is to be given up; call
  // on_down.
  Status on_frame(Rank from, Bytes frame, Nanos now);

  // -- Events
  // Completes all calls to the peer as kUnavailable, forgets its requests. Final.
  void on_down(Rank peer, const Status& why, Nanos now);
  // Ends the conversation: all calls, later ones too, complete as kAborted.
  void fail(const Status& why, Nanos now);
  // Completes calls whose deadline has passed. Call it at next_deadline() at the latest.
  void tick(Nanos now);
  Nanos next_deadline() const { return calls_.next_deadline(); }

  // -- Accounts
  size_t open_calls() const { return calls_.open_calls(); }  // not complete, or not taken
  size_t open_bytes() const { return calls_.open_bytes(); }
  size_t open_requests() const { return served_.open_requests(); }
  size_t held_bytes() const { return served_.held_bytes(); }

 private:
  Status take(Rank from, const Piece& piece, Nanos now);
  void send_to_self(Nanos now);
  Status check(const RpcCall& call) const;

  const RpcParams params_;
  RpcOutbox outbox_;
  RpcCalls calls_;
  RpcServed served_;
};

}  // namespace swale::net
