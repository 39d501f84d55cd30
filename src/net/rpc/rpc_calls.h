// RpcCalls: the calling half of an RpcCore: the calls of this rank until they are complete, what may be under
// way at each peer, deadlines and cancellation.
//
// A call that is complete for its caller (cancelled, too late) and of which the server knows stays here until
// the server has answered it: until then it counts against the window of its peer. The server answers each
// request exactly once.
//
// Invariants: the calls of a peer that are under way without a grant cost at most RpcParams::window_bytes; at
// most
//   kRpcOffersMax calls are offered to a peer; calls that are not complete, and completions that were not
//   taken, are at most calls_max and cost at most calls_bytes_max.
// Threads: none; the owner serialises calls. Errors: see RpcCore. Calls end without memory, too: their
// failures have the right code then and say less. Else one that waits for ever would be left behind where
// memory has run out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/fabric/per_rank.h"
#include "net/rpc/rpc_outbox.h"
#include "net/rpc/rpc_types.h"

namespace swale::net {

inline constexpr uint32_t kRpcOffersMax = 4;  // of one caller to one server

class RpcServed;

class RpcCalls {
 public:
  RpcCalls(const RpcParams* params, RpcOutbox* outbox);

  // kResourceExhausted if this rank may not have so many more calls.
  Status has_capacity(size_t calls, size_t bytes) const;
  Result<CallId> start(RpcCall&& call, Nanos now);
  bool cancel(CallId id, Nanos now) noexcept;
  void cancel_all(uint64_t owner, Nanos now) noexcept;
  void tick(Nanos now) noexcept;
  Nanos next_deadline() const { return earliest_; }
  // As RpcCore's.
  template <class Take>
  void take_completions(const Take& take);
  bool any_complete() const { return !done_.empty(); }
  size_t open_calls() const { return open_calls_; }
  size_t open_bytes() const { return open_bytes_; }

  bool hears(Rank from) { return failure_.ok() && peer(from).down.ok(); }
  // Pieces from a server. kCorruption (scope peer): it breaks the protocol.
  Status on_response(Rank from, const Piece& piece);
  Status on_more_response(Rank from, const Piece& piece);
  Status on_failure(Rank from, const Piece& piece, Nanos now);
  Status on_grant(Rank from, const Piece& piece);
  void on_down(Rank peer, const Status& why, Nanos now) noexcept;
  void fail(const Status& why, Nanos now) noexcept;

  // Sends what `entry`, a Call at the front of its peer's outbox, has to send. False: the frame is full.
  bool write(RpcOutgoing* entry, RpcFrameWriter* frame);
  // The same for a call to this rank itself.
  void send_to_self(RpcOutgoing* entry, RpcServed* served);
  void on_own_response(uint64_t id, Result<std::string> response, Nanos now);

 private:
  enum class State : uint8_t {
    kWaiting,   // for the window, or for one of kRpcOffersMax offers
    kOfferDue,  // in the outbox
    kOffered,   // waits for the grant
    kSending,   // in the outbox
    kSent,      // waits for the response
  };
  struct Call : RpcOutgoing {
    Call() noexcept { is_call = true; }
    uint64_t handle = 0;
    State state = State::kWaiting;
    bool told = false;        // complete for the caller
    bool cancel_due = false;  // in the outbox
    bool offer_open = false;  // offered and not granted
    bool begun = false;       // the first piece is sent
    bool receiving = false;   // the first piece of the response has come
    RpcMethod method = 0;
    uint32_t response_bytes_max = 0;
    uint32_t response_bytes = 0;
    uint32_t received = 0;
    uint32_t request_bytes = 0;
    uint32_t sent = 0;
    size_t cost = 0;
    Nanos asked_at = 0;
    Nanos deadline = kForever;
    uint64_t owner = 0;
    uint64_t tag = 0;
    RpcPayload payload;
    std::string response;
    std::span<MutableBytes> into;  // not filled yet; data() is null if the response goes to `response`
    ListLink<Call> of_peer;
    ListLink<Call> waiting;
  };
  using PeerCalls = LinkedList<Call, &Call::of_peer>;
  using WaitingCalls = LinkedList<Call, &Call::waiting>;
  struct Peer {
    PeerCalls calls;
    WaitingCalls eager;
    WaitingCalls large;
    size_t under_way = 0;  // cost
    uint32_t offers = 0;
    Status down;  // why
  };
  struct Done {
    RpcCompletion completion;
    size_t cost;
  };

  Peer& peer(Rank rank) { return peers_[rank]; }
  bool large(const Call& call) const;
  // Why a call ends, with rank, host, method and time: "WHO{before}TIME s{after}".
  Status ended(const Call& call, Nanos now, Code code, Scope scope, std::string_view before,
               std::string_view after = {}, std::string_view why = {}) const noexcept;
  Status failed(const Call& call, const Status& why, Nanos now) const noexcept;
  Result<Call*> answered(Rank from, const Piece& piece);
  void admit(Rank rank);
  void receive(Call* call, Bytes body);
  static void keep(Call* call, Bytes body);
  void tell(Call* call, Result<std::string>&& response);
  void drop_taken(size_t count);
  void abandon(Call* call, const Status& why);
  Status cancelled(const Call& call, Nanos now) const noexcept;
  void finish(Call* call);
  void forget(Call* call);
  void end_all(Rank rank, const Status& why, Nanos now) noexcept;

  const RpcParams& params_;
  RpcOutbox& outbox_;
  SlotTable<Call> calls_;
  PerRank<Peer> peers_;
  std::vector<Done> done_;  // has capacity for all open calls
  size_t open_calls_ = 0;   // not complete, or not taken
  size_t open_bytes_ = 0;
  Nanos earliest_ = kForever;  // no deadline is earlier
  Status failure_;
};

// (The caller holds the locks that `take` requires; the analysis of base/mutex.h cannot see them in here.)
template <class Take>
void RpcCalls::take_completions(const Take& take) NO_THREAD_SAFETY_ANALYSIS {
  size_t taken = 0;
  try {
    for (; taken < done_.size(); ++taken) take(std::move(done_[taken].completion));
  } catch (...) {
    drop_taken(taken);
    throw;
  }
  drop_taken(taken);
}

}  // namespace swale::net
