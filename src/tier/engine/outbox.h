// Outbox: the actions that an engine asks its driver for, in order.
//
// Invariants: (1) actions are taken in the order in which they were emitted; (2) an action that was handed
// out stays valid until the next one is emitted or taken.
// Threads: one at a time. Memory: as many actions as ever waited together; they are used again.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

#include "tier/engine/engine_types.h"

namespace swale::tier {

class Outbox {
 public:
  void emit(const Action& action) { next_free() = action; }
  // An action to be filled in: the frequent ones are neither copied nor cleared. Its record and what only
  // rare kinds have are those of an action before it.
  Action& emit(Action::Kind kind, FileIndex file, Ticket ticket, uint32_t id = 0) {
    Action& action = next_free();
    action.kind = kind;
    action.code = Code::kOk;
    action.queued = action.released = false;
    action.id = id;
    action.file = file;
    action.ticket = ticket;
    return action;
  }
  // The request `ticket` is over: its payload is needed no longer.
  void answer(Ticket ticket, FileIndex file, Code code) {
    Action& action = emit(Action::Kind::kAcknowledge, file, ticket);
    action.code = code;
    action.released = true;
  }

  // The next action to be carried out; null: there is none.
  const Action* take() {
    assert(taken_ <= end_ && end_ <= made_);
    if (taken_ < end_) return &actions_[taken_++];
    taken_ = end_ = 0;
    return nullptr;
  }
  bool empty() const { return taken_ == end_; }

 private:
  Action& next_free() {
    if (end_ == made_) make_more();
    return actions_[end_++];
  }
  [[gnu::noinline]] void make_more() {
    actions_.emplace_back();
    made_ = actions_.size();
  }

  std::vector<Action> actions_;  // from taken_ to end_: to be taken; beyond: used again
  size_t taken_ = 0;
  size_t end_ = 0;
  size_t made_ = 0;  // the size of actions_: to be had without a division
};

}  // namespace swale::tier
