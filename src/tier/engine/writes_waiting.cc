// Writes: what somebody waits for (docs/design/tier.md, "What a waiter pays"). swale's policy alone.
//
// A write to the backing device is cheap while nobody waits for it: a queue, or the system's page cache,
// takes it. Who waits are a sync of its file, and a later write of the same range.
#include <algorithm>
#include <cassert>
#include <vector>

#include "tier/engine/writes.h"

namespace swale::tier {

// A write of exactly the range of one that waits in the elevator takes its place: what nobody has written
// anywhere need not be written. Both have been acknowledged from the shared queue then, and its newer slot
// counts. Only with the page cache as the promise: in the other modes the older write has not been answered
// yet.
bool Writes::absorb(OpIndex index) {
  Op& op = shared_.ops[index];
  const FileState& file = shared_.files[op.file];
  if (!shared_.swale() || !shared_.page_cache() || !op.is_write()) return false;
  if (file.barrier != kNoOp || flusher_.failures() > 0)
    return false;  // this one would have to wait for its answer
  if (file.blocked > 0 && order_.blocked_before(op)) return false;
  const std::vector<OpIndex>& holders = order_.holders(op.file, op.offset, op.end());
  if (holders.size() != 1) return false;
  const OpIndex old_index = holders[0];
  Op& old = shared_.ops[old_index];
  if (old.stage != Op::Stage::kQueued || !old.acknowledged || old.pins > 0 || old.offset != op.offset ||
      old.length != op.length)
    return false;
  const Piece piece{Piece::Source::kRequest, op.length, op.offset, 0, op.ticket, index};
  if (!queue_.elevator().replace(op.file, shared_.files.position(op.file, op.offset), piece))
    return false;  // is being written
  order_.replace(old_index, index);
  // A sync that waits for the older bytes waits for these.
  if (!shared_.options.canaries.forget_replaced) {
    std::swap(op.file_epoch, old.file_epoch);
    std::swap(op.epoch, old.epoch);
  }
  shared_.stats.direct_bytes -= old.length;
  shared_.stats.absorbed_bytes += old.length;
  admitted(index);
  shared_.ops.finish(old_index, Code::kOk);
  return true;
}

// Gives what a waiting slot has of requests in [from, to) of its file to the log; the rest waits on.
void Writes::divert(SlotIndex index, uint64_t from, uint64_t to) {
  Elevator& elevator = queue_.elevator();
  const std::vector<Piece> pieces = elevator.slot(index).pieces;
  const bool passing = elevator.slot(index).passing;
  const FileIndex file = elevator.slot(index).file;
  elevator.withdraw(index);
  elevator.release(index);
  for (const Piece& piece : pieces) {
    const bool wanted =
        piece.source == Piece::Source::kRequest && piece.offset < to && from < piece.offset + piece.length;
    if (wanted && records_.take_space(&shared_.ops[piece.op])) {
      shared_.stats.direct_bytes -= piece.length;
      shared_.stats.diverted_bytes += piece.length;
      append(piece.op);
      continue;
    }
    const uint64_t at = shared_.files.position(file, piece.offset);
    if (!elevator.merge(file, at, piece)) elevator.add(file, at, piece, passing);
  }
}

// A write waits for one that waits in the elevator: for half of the queue, on average. The log frees the
// range after an append, and takes the waiting write too (rule 2).
void Writes::divert_overlapping(const Op& op) {
  const Elevator& elevator = queue_.elevator();
  if (!shared_.swale() || !op.is_write() || !records_.usable() || !records_.waiters().empty()) return;
  if (costs_.slot_ns() * static_cast<double>(elevator.depth()) / 2 <=
      Redirector::kWorth * costs_.log_sync_ns())
    return;
  for (const OpIndex index : std::vector(order_.holders(op.file, op.offset, op.end()))) {
    const Op& before = shared_.ops[index];
    if (before.stage != Op::Stage::kQueued || before.over_loss || redirector_.budget_left() < before.length)
      continue;
    const SlotIndex slot =
        elevator.waiting_with(before.file, shared_.files.position(before.file, before.offset));
    if (slot != kNoSlot) divert(slot, before.offset, before.offset + before.length);
  }
}

// A sync waits for what the elevator has of its file. If the log takes all of that sooner, it gets it.
void Writes::divert_for_sync(FileIndex index) {
  const Elevator& elevator = queue_.elevator();
  if (!shared_.swale() || !records_.usable() || !records_.waiters().empty()) return;
  std::vector<SlotIndex> slots;
  double bytes = 0;
  for (size_t i = 0; i < elevator.waiting(); ++i) {
    const Slot& slot = elevator.slot(elevator.waiting_at(i));
    if (slot.file != index || slot.direct_count == 0) continue;
    slots.push_back(elevator.waiting_at(i));
    for (const Piece& piece : slot.pieces)
      bytes += piece.source == Piece::Source::kRequest ? piece.length : 0;
  }
  if (slots.empty() ||
      costs_.slot_ns() * static_cast<double>(slots.size()) <= Redirector::kWorth * costs_.log_sync_ns())
    return;
  if (redirector_.budget_left() < bytes) return;  // a part of them would spare the sync nothing
  for (const SlotIndex slot : slots) divert(slot, 0, kFileBytesMax);
}

}  // namespace swale::tier
