// SlotList: frames that wait, in the order in which they came: a list that is linked through its items.
// Moving one from list to list needs no memory, so it cannot fail.
//
// Threads: none; the owner serialises calls. Invariant: a slot (it has a `next`) stands in at most one list.
#pragma once

#include <cassert>

namespace swale::net {

template <class Slot>
class LinkedSlots {
 public:
  bool empty() const { return first_ == nullptr; }
  Slot* front() const { return first_; }
  void push_back(Slot* slot) {
    slot->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = slot;
    last_ = slot;
  }
  Slot* pop_front() {
    assert(first_ != nullptr);
    Slot* slot = first_;
    first_ = slot->next;
    if (first_ == nullptr) last_ = nullptr;
    return slot;
  }
  void append(LinkedSlots* more) {
    if (more->empty()) return;
    (last_ == nullptr ? first_ : last_->next) = more->first_;
    last_ = more->last_;
    *more = {};
  }

 private:
  Slot* first_ = nullptr;
  Slot* last_ = nullptr;
};

}  // namespace swale::net
