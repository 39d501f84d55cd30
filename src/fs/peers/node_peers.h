// NodePeers: what the servers of a job's nodes ask each other about files, on net::Rpc. Each node is a rank
// of the job; NodeId is the number of its server of names, whose host that rank is.
//
//   call() ─► Rpc ─► a queue a lane ─► a thread of its own ─► PeerRequests::answer ─► Rpc ─► the caller
//              └────────► PeerRequests::answer_at_once, where it can ──────────────────┘
//
// An answer may itself call nodes, in lanes that come before its own alone: so no two nodes wait for each
// other's threads. Each call has a deadline; a node that is down fails its calls at once.
//
// Threads: open and close collectively; call by any; a thread a lane. Requests that come before start() wait.
// Errors: EIO, which names the node and what it was asked, if it is down, silent or sends garbage; else what
// it has answered. Limits: kRpcMessageBytesMax a message.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "fs/share/share_messages.h"
#include "net/job/job.h"
#include "net/rpc/rpc.h"

namespace swale::fs {

// DO NOT CHANGE THESE VALUES: nodes of one job may run different builds.
enum class PeerMethod : uint16_t {
  kAsk = 0,       // the root of a file: ShareRequest
  kFetch = 1,     // bytes: FetchRequest
  kFix = 2,       // what the node has of a file, for a drain: DrainStep
  kWriteOut = 3,  // brings it to its places: DrainStep
  kBrought = 4,   // the file is on the backing: DrainStep
  kDrain = 5,     // the root leads a drain: DrainWish
  kTurn = 6,      // of changing names (NameTurns)
  kTurnOver = 7,
  kLives = 8,      // nothing
  kMoved = 9,      // another name leads to a file, or none: NameNews
  kDrainAll = 10,  // that the node has
  kLock = 11,      // of the root of a file: LockMessage
  kLockGranted = 12,
  kLockNodeGone = 13,  // of itself: a node's locks end
  kSeal = 14,          // of a file: SealStep, SealAnswer
  kPages = 15,         // the kernel drops those of a file: FileStep, PagesAnswer
  kSync = 16,          // the root of a file, which it is to outlive power: ShareRequest
  kKeep = 17,          // what the node has of a file is to outlive its power: FileStep
  kBegin = 18,         // a node begins: BeginStep
  kTakeBack = 19,      // the maps of a file that the node has published: FileStep
  kUndrained = 20,     // bytes of the node that the backing has not; the answer: u64
  kCommit = 21,        // what the node has written of a file: FileStep
  kStandIn = 22,       // the root of a file, of which a node has a plain one: StandInStep, StandInAnswer
  kTakeIn = 23,        // what programs have written to such: TakeInWish
};

inline constexpr size_t kSmallAnswer = 64;  // bytes, of an answer that says little

class PeerRequests {
 public:
  virtual ~PeerRequests() = default;
  virtual Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload) = 0;
  // The same, where requests come: no longer than a change of threads, some 10 us, and nobody is waited for.
  // `reply` copies the answer. False: a thread is to answer.
  using Reply = std::function<void(Bytes answer)>;
  virtual bool answer_at_once(PeerMethod, NodeId, Bytes, const Reply&) { return false; }
};

// What becomes of a call, for tests.
enum class CallFate { kGoes, kIsLost, kAnswerIsLost, kComesTwice };

struct NodePeersOptions {
  NodeId own = 0;                                   // of this rank; all together count from 0
  uint32_t nodes = 0;                               // of which some may be at no rank; 0: each is at one
  Nanos patience = seconds(30);                     // with an answer that needs no storage
  std::function<CallFate(PeerMethod method)> fate;  // of each call; null: it goes
};

class NodePeers final : private net::RpcService {
 public:
  static Result<std::unique_ptr<NodePeers>> open(net::Job& job, const NodePeersOptions& options);
  ~NodePeers() override;

  NodeId own() const { return options_.own; }
  uint32_t nodes() const { return static_cast<uint32_t>(hosts_.size()); }
  Nanos patience() const { return options_.patience; }

  // `requests` outlives this, or its close().
  Status start(PeerRequests* requests);
  // `what`: for messages: "file 1:2". A failure to answer is EIO. `patience`: 0: as the method has.
  Result<std::string> call(NodeId to, PeerMethod method, std::string payload, size_t answer_bytes_max,
                           const std::string& what, Nanos patience = 0) noexcept;
  // The same of several nodes at once: what each has answered, in this order.
  std::vector<Result<std::string>> call_all(std::span<const NodeId> to, PeerMethod method,
                                            const std::string& payload, size_t answer_bytes_max,
                                            const std::string& what, Nanos patience = 0);
  // Several calls of one node at once, each with an answer of exactly as many bytes as its places. If one
  // fails, all do, and the places have anything.
  struct Piece {
    std::string payload = {};
    std::vector<MutableBytes> into = {};  // is used up
  };
  Status call_for_pieces(NodeId to, PeerMethod method, std::span<Piece> pieces,
                         const std::string& what) noexcept;

  // Collective, when no thread of this node calls any more.
  Status close();

 private:
  struct Lane {
    CondVar work;
    std::deque<net::RpcRequest> queue;  // guarded by mutex_
    std::thread thread;
  };
  class Client;  // one that is free, or a new one
  Nanos deadline_of(PeerMethod method, Nanos patience) const;
  Status ask_for_pieces(Client& client, const net::RpcCall& each_call, std::span<Piece> pieces) const;

  NodePeers(net::Job& job, const NodePeersOptions& options) : job_(job), options_(options) {}
  Status begin();
  void on_requests(std::span<net::RpcRequest> requests) override;
  void serve(size_t lane);
  void answer(PeerRequests& requests, net::RpcRequest& request);
  bool answer_at_once(PeerRequests& requests, net::RpcRequest& request);
  Result<NodeId> node_at(net::Rank rank) const;
  Status expect_there(NodeId node, const std::string& what) const;
  void stop();

  net::Job& job_;
  const NodePeersOptions options_;
  std::vector<net::Rank> hosts_;  // of each node; -1: it is at none
  std::vector<NodeId> nodes_;     // by rank
  Mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // the vector does not change after begin()
  std::vector<std::unique_ptr<net::RpcClient>> free_ GUARDED_BY(mutex_);
  PeerRequests* requests_ GUARDED_BY(mutex_) = nullptr;
  bool stop_ GUARDED_BY(mutex_) = false;
  uint64_t inside_ GUARDED_BY(mutex_) = 0;  // threads that answer at once
  CondVar left_;
  std::unique_ptr<net::Rpc> rpc_;
  bool closed_ = false;
};

}  // namespace swale::fs
