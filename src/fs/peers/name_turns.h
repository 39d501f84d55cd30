// NameTurns: one node after the other changes names on the backing and in the tree. Node 0 gives the turns.
//
// A turn ends by over(), or when its node is down; a node that is silent keeps it, and the others get EIO.
//
// Threads: any. Errors: kBusy (EIO), naming the node that has the turn, when it takes longer than the peers'
// patience.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "fs/peers/node_peers.h"

namespace swale::fs {

class NameTurns {
 public:
  // `expect_own`: whether this node may still change the backing; null: it may.
  explicit NameTurns(NodePeers& peers, std::function<Status()> expect_own = {})
      : peers_(peers), expect_own_(std::move(expect_own)) {}

  // A number for over().
  Result<uint64_t> take();
  void over(uint64_t number);

  // Of node 0: kTurn, kTurnOver.
  Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload);

 private:
  struct Turn {
    NodeId node = 0;
    uint64_t number = 0;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  Status wait_for(const Turn& turn);
  void end(const Turn& turn);
  Status look_for_dead(NodeId node) EXCLUDES(mutex_);

  NodePeers& peers_;
  const std::function<Status()> expect_own_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t last_ GUARDED_BY(mutex_) = 0;  // of this node
  // Of node 0.
  bool taken_ GUARDED_BY(mutex_) = false;
  Turn now_ GUARDED_BY(mutex_);
  std::set<Turn> over_ GUARDED_BY(mutex_);  // given up before they began
};

// The turn, for as long as this lives; without peers it is nothing.
class NameTurn {
 public:
  NameTurn() = default;
  NameTurn(NameTurn&& other) noexcept : turns_(other.turns_), number_(other.number_) {
    other.turns_ = nullptr;
  }
  NameTurn& operator=(NameTurn&&) = delete;
  ~NameTurn() {
    if (turns_ != nullptr) turns_->over(number_);
  }
  static Result<NameTurn> take(NameTurns* turns) {
    NameTurn turn;
    if (turns == nullptr) return turn;
    SWALE_ASSIGN_OR_RETURN(turn.number_, turns->take());
    turn.turns_ = turns;
    return turn;
  }

 private:
  NameTurns* turns_ = nullptr;
  uint64_t number_ = 0;
};

}  // namespace swale::fs
