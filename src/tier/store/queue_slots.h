// QueueSlots: the slots of the shared queue, as writers and engine see them: a writer takes one and fills it,
// the engine answers and, then or later, does not need the bytes any more; once both are done with it, it is
// free.
//
// Threads: one at a time (StoreCore's mutex).
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace swale::tier {

class QueueSlots {
 public:
  explicit QueueSlots(uint32_t count) : slots_(count) {
    for (uint32_t i = count; i-- > 0;) free_.push_back(i);
  }
  uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  bool any_free() const { return !free_.empty(); }
  bool all_free() const { return free_.size() == slots_.size(); }

  uint32_t take() {
    assert(any_free());
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  // It was taken, and the engine never got it.
  void give_back(uint32_t index) { free(index); }
  void set_check(uint32_t index, uint32_t check) { slots_[index].check = check; }
  uint32_t check(uint32_t index) const { return slots_[index].check; }  // of its payload

  void answer(uint32_t index, Code code) {
    assert(!slots_[index].answered);
    slots_[index].answered = true;
    slots_[index].code = code;
  }
  bool answered(uint32_t index) const { return slots_[index].answered; }
  Code code(uint32_t index) const { return slots_[index].code; }
  // The engine does not need its bytes any more. True: it is free.
  bool release(uint32_t index) {
    slots_[index].released = true;
    return free_if_done(index);
  }
  // The writer has its answer. True: it is free.
  bool collect(uint32_t index) {
    slots_[index].collected = true;
    return free_if_done(index);
  }

 private:
  struct Slot {
    bool answered = false;
    bool released = false;
    bool collected = false;
    Code code = Code::kOk;
    uint32_t check = 0;
  };
  bool free_if_done(uint32_t index) {
    if (!slots_[index].released || !slots_[index].collected) return false;
    free(index);
    return true;
  }
  void free(uint32_t index) {
    slots_[index] = {};
    free_.push_back(index);
  }

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace swale::tier
