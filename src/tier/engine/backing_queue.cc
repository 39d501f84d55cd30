#include "tier/engine/backing_queue.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {

BackingQueue::BackingQueue(Shared* shared, Costs* costs)
    : shared_(*shared),
      costs_(*costs),
      elevator_(shared->options.queue_slots, shared->options.merge_bytes_max),
      in_flight_max_(shared->options.backing_depth),
      direct_times_(std::max<uint32_t>(1, shared->options.quiet_requests_per_second), -kForever) {}

bool BackingQueue::place(OpIndex index, bool may_add) {
  const Op& op = shared_.ops[index];
  assert(op.is_write());
  const Piece piece{Piece::Source::kRequest, op.length, op.offset, 0, op.ticket, index};
  const uint64_t at = shared_.files.position(op.file, op.offset);
  if (elevator_.merge(op.file, at, piece)) return true;
  if (!may_add || elevator_.full()) return false;
  elevator_.add(op.file, at, piece);
  return true;
}

void BackingQueue::wait(OpIndex write) {
  ++shared_.stats.slot_waits;
  shared_.ops[write].stage = Op::Stage::kSlotWait;
  waiters_.push_back(write);
}

void BackingQueue::note_direct() {
  direct_times_[direct_next_] = shared_.now;
  direct_next_ = direct_next_ + 1 == direct_times_.size() ? 0 : direct_next_ + 1;
}

SlotIndex BackingQueue::dispatch() {
  assert(may_dispatch());
  const SlotIndex slot = elevator_.next();
  elevator_.take(slot);
  ++in_flight_;
  if (started_.size() <= slot) started_.resize(slot + 1);
  started_[slot] = shared_.now;
  ++shared_.stats.slots_written;
  shared_.outbox.emit(Action::Kind::kWriteBacking, elevator_.slot(slot).file, 0, slot);
  return slot;
}

const Slot& BackingQueue::written(SlotIndex index, Code code) {
  assert(in_flight_ > 0);
  --in_flight_;
  const Slot& slot = elevator_.slot(index);
  if (code == Code::kOk) costs_.slot_written(slot, shared_.now - started_[index]);
  return slot;
}

}  // namespace swale::tier
