// RpcServed: the serving half of an RpcCore: requests of other ranks, and of this one, from their first piece
// until the last byte of the response is in a frame. Each request is answered exactly once: with a response,
// a failure, or, if its caller has cancelled it, a failure that the caller ignores.
//
// Invariants: the requests of a caller that were not offered cost at most RpcParams::window_bytes, a caller
// that sends more
//   breaks the protocol; granted requests cost at most granted_bytes_max.
// Threads: none; the owner serialises calls. Errors: see RpcCore.
#pragma once

#include <string>
#include <vector>

#include "net/fabric/per_rank.h"
#include "net/rpc/rpc_outbox.h"
#include "net/rpc/rpc_types.h"

namespace swale::net {

class RpcCalls;

class RpcServed {
 public:
  RpcServed(const RpcParams* params, RpcOutbox* outbox);

  void take_requests(size_t max, std::vector<RpcRequest>* out);
  bool any_request() const { return !ready_.empty(); }
  bool reply(ReplyToken token, Result<RpcPayload>&& response);
  bool wanted(ReplyToken token);
  size_t open_requests() const { return entries_.size(); }
  size_t held_bytes() const { return held_ + granted_; }

  // Pieces from a caller. kCorruption (scope peer): it breaks the protocol.
  Status on_request(Rank from, const Piece& piece);
  Status on_more_request(Rank from, const Piece& piece);
  Status on_offer(Rank from, const Piece& piece);
  void on_cancel(Rank from, uint64_t id);
  void on_down(Rank peer);
  void fail();

  // As those of RpcCalls, for an Entry.
  bool write(RpcOutgoing* entry, RpcFrameWriter* frame);
  void send_to_self(RpcOutgoing* entry, RpcCalls* calls, Nanos now);
  void keep(ReplyToken token);
  void on_own_request(uint64_t id, RpcMethod method, std::string payload, uint32_t response_bytes_max);

 private:
  enum class State : uint8_t {
    kOffered,    // in offers_
    kGrantDue,   // in the outbox
    kGranted,    // the request may come
    kReceiving,  // in the caller's list
    kReady,      // in ready_
    kTaken,      // by the service
    kReplying,   // in the outbox
  };
  struct Entry : RpcOutgoing {
    uint64_t handle = 0;
    uint64_t id = 0;  // the caller's
    State state = State::kReceiving;
    bool held = false;      // counted in held_
    bool granted = false;   // counted in granted_
    bool unwanted = false;  // cancelled, or the caller is gone
    bool forsaken = false;  // the caller is gone
    bool failing = false;   // the response is a failure
    bool begun = false;     // the first piece of the response is sent
    RpcMethod method = 0;
    uint32_t request_bytes = 0;
    uint32_t response_bytes_max = 0;
    uint32_t sent = 0;
    size_t cost = 0;
    std::string request;
    RpcPayload response;
    Status why;  // of failing
    ListLink<Entry> of_peer;
    ListLink<Entry> queue;
  };
  using Queue = LinkedList<Entry, &Entry::queue>;
  struct Peer {
    LinkedList<Entry, &Entry::of_peer> entries;
    Queue receiving;
    size_t held = 0;  // cost of requests that were not offered
    uint32_t offers = 0;
  };

  Peer& peer(Rank rank) { return peers_[rank]; }
  Entry& add(Rank from, uint64_t id, RpcMethod method, size_t request_bytes, uint32_t response_bytes_max);
  Status granted_entry(Rank from, const Piece& piece, Entry** entry);
  void receive(Entry* entry, Bytes body);
  void answer(Entry* entry, Result<RpcPayload>&& response);
  void grant_offers();
  void leave_queue(Entry* entry);
  void forget(Entry* entry);

  const RpcParams& params_;
  RpcOutbox& outbox_;
  SlotTable<Entry> entries_;
  PerRank<Peer> peers_;
  Queue offers_;
  Queue ready_;
  size_t held_ = 0;     // of all peers
  size_t granted_ = 0;  // cost of granted requests
};

}  // namespace swale::net
