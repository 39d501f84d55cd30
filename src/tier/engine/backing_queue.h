// BackingQueue: what is on its way to the backing device: the elevator, its slots that are being written, and
// the writes that wait for a slot.
//
// Invariants: (1) at most Options::backing_depth slots are being written; (2) writes get slots in the order
// in which they came, but for those that merge at once.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tier/engine/costs.h"
#include "tier/engine/elevator.h"
#include "tier/engine/shared.h"

namespace swale::tier {

class BackingQueue {
 public:
  BackingQueue(Shared* shared, Costs* costs);

  // Puts a write into a slot that it continues, or into a free one if `may_add`. False: there is none for it.
  bool place(OpIndex write, bool may_add);
  // Who waits for a slot, in order.
  const std::deque<OpIndex>& waiters() const { return waiters_; }
  void wait(OpIndex write);
  void pop_waiter() { waiters_.pop_front(); }
  // What has a slot, or waits for one.
  size_t waiting() const { return elevator_.depth() + waiters_.size(); }

  // A direct write has got a slot. Quiet: there were few in the last second, so nobody would be disturbed.
  void note_direct();
  bool quiet() const {
    return shared_.options.quiet_requests_per_second == 0 ||
           direct_times_[direct_next_] < shared_.now - 1'000'000'000;
  }
  Nanos quiet_at() const { return direct_times_[direct_next_] + 1'000'000'001; }

  bool may_dispatch() const { return in_flight_ < in_flight_max_ && !elevator_.empty(); }
  // Has the driver write the next slot. Returns its number.
  SlotIndex dispatch();
  // It is written, or not; its pieces stay valid until release.
  const Slot& written(SlotIndex slot, Code code);
  void release(SlotIndex slot) { elevator_.release(slot); }

  Elevator& elevator() { return elevator_; }
  const Elevator& elevator() const { return elevator_; }
  uint32_t in_flight() const { return in_flight_; }
  bool idle() const { return waiters_.empty() && elevator_.empty() && in_flight_ == 0; }

 private:
  Shared& shared_;
  Costs& costs_;
  Elevator elevator_;
  std::deque<OpIndex> waiters_;
  uint32_t in_flight_ = 0;
  const uint32_t in_flight_max_;
  std::vector<Nanos> started_;       // by slot
  std::vector<Nanos> direct_times_;  // ring: when the last direct writes got their slots
  size_t direct_next_ = 0;
};

}  // namespace swale::tier
