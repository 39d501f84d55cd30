// Engine: what somebody waits for (docs/design/tier.md, "What a waiter pays"). swale's policy alone.
//
// A write to the backing device is cheap while nobody waits for it: a queue, or the system's page cache, takes it. Who waits are a sync
// of its file, and a later write of the same range. What a waiter pays is measured for each class: a slot of the queue, a sync of a
// file that the backing device has to write for, a sync of the log.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {
namespace {

// The log must answer so many times sooner: its bytes are written twice, and a measurement is not exact.
constexpr double kWorth = 2;
// A file that has received so many times what it has between two syncs is not waited for.
constexpr double kHabitMax = 8;
constexpr double kHabitSmoothing = 1.0 / 4;
// What the log takes measures nothing of the backing device. After so many times what a sync took there, one tries again: 2 % of the time.
constexpr double kTryAgain = 50;
constexpr double kShort = 0.75;  // a write is short below this share of the mean
// So many times what a group or a write has stays in the budget when it goes to the log: for short writes that will come.
constexpr double kReserve = 3;

}  // namespace

// A write of exactly the range of one that waits in the elevator takes its place: what nobody has written anywhere need not be
// written. Both have been acknowledged from the shared queue then, and its newer slot counts. Only with the page cache as the promise:
// in the other modes the older write has not been answered yet.
bool Engine::absorb(OpIndex index) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  if (shared_.options.policy != Policy::kSwale || !shared_.page_cache() || op.kind != Op::Kind::kWrite)
    return false;
  if (file.barrier != kNoOp || flush_failures_ > 0)
    return false;  // this one would have to wait for its answer
  if (file.blocked > 0) {
    for (const OpIndex before : blocked_) {
      if (before == index) break;
      const Op& other = shared_.ops[before];
      if (other.file != op.file) continue;
      if (other.kind != Op::Kind::kWrite) return false;
      if (other.offset < op.offset + op.length && op.offset < other.offset + other.length) return false;
    }
  }
  held_.find(op.file, op.offset, op.offset + op.length, &read_holders_);
  if (read_holders_.size() != 1) return false;
  const OpIndex old_index = read_holders_[0];
  Op& old = shared_.ops[old_index];
  if (old.stage != Op::Stage::kQueued || !old.acknowledged || old.pins > 0 || old.offset != op.offset ||
      old.length != op.length)
    return false;
  const Piece piece{Piece::Source::kRequest, op.length, op.offset, 0, op.ticket, index};
  if (!elevator_.replace(op.file, shared_.files.position(op.file, op.offset), piece))
    return false;  // is being written
  held_.remove(old_index);
  const bool held = held_.add_if_free(index, op.file, op.offset, op.offset + op.length);
  assert(held);
  static_cast<void>(held);
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
void Engine::divert(SlotIndex index, uint64_t from, uint64_t to) {
  const std::vector<Piece> pieces = elevator_.slot(index).pieces;
  const bool passing = elevator_.slot(index).passing;
  const FileIndex file = elevator_.slot(index).file;
  elevator_.withdraw(index);
  elevator_.release(index);
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
    if (!elevator_.merge(file, at, piece)) elevator_.add(file, at, piece, passing);
  }
}

// A write waits for one that waits in the elevator: for half of the queue, on average. The log frees the range after an append, and
// takes the waiting write too (rule 2).
void Engine::divert_overlapping(const Op& op) {
  if (shared_.options.policy != Policy::kSwale || op.kind != Op::Kind::kWrite || !records_.usable() ||
      !records_.waiters().empty())
    return;
  if (slot_ns_ * static_cast<double>(elevator_.depth()) / 2 <= kWorth * log_sync_ns_) return;
  held_.find(op.file, op.offset, op.offset + op.length, &read_holders_);
  for (const OpIndex index : std::vector(read_holders_)) {
    const Op& before = shared_.ops[index];
    if (before.stage != Op::Stage::kQueued || before.over_loss || budget_left() < before.length) continue;
    const SlotIndex slot =
        elevator_.waiting_with(before.file, shared_.files.position(before.file, before.offset));
    if (slot != kNoSlot) divert(slot, before.offset, before.offset + before.length);
  }
}

// A sync waits for what the elevator has of its file. If the log takes all of that sooner, it gets it.
void Engine::divert_for_sync(FileIndex index) {
  if (shared_.options.policy != Policy::kSwale || !records_.usable() || !records_.waiters().empty()) return;
  std::vector<SlotIndex> slots;
  double bytes = 0;
  for (size_t i = 0; i < elevator_.waiting(); ++i) {
    const Slot& slot = elevator_.slot(elevator_.waiting_at(i));
    if (slot.file != index || slot.direct_count == 0) continue;
    slots.push_back(elevator_.waiting_at(i));
    for (const Piece& piece : slot.pieces)
      bytes += piece.source == Piece::Source::kRequest ? piece.length : 0;
  }
  if (slots.empty() || slot_ns_ * static_cast<double>(slots.size()) <= kWorth * log_sync_ns_) return;
  if (budget_left() < bytes) return;  // a part of them would spare the sync nothing
  for (const SlotIndex slot : slots) divert(slot, 0, kFileBytesMax);
}

// A write to the file begins. Between two syncs all writes go to one device: the first one that the backing device gets makes the sync pay
// for that. Where there is no budget for all of them, the short ones go to the log: a device that needs a seek for each write costs as
// much for a short one, and the budget counts bytes.
void Engine::expect_sync(FileState* file, uint32_t length) {
  if (shared_.options.policy != Policy::kSwale) return;
  SyncHabit& habit = file->habit;
  if (!shared_.page_cache()) {  // each write is waited for
    habit.bytes = std::max<double>(habit.bytes, length);
    habit.writes = 1;
    habit.since_bytes = habit.since_writes = 0;
  }
  if (habit.since_bytes == 0) {
    habit.to_log = habit.small_to_log = false;
    if (habit.bytes > 0 && !shared_.log.exhausted() && log_answers_sooner(*file)) {
      const double left = budget_left();
      const double each = habit.bytes / habit.writes;
      // Of writes that are synced one by one, long ones leave a part of the budget to the short ones that will come.
      const double wanted =
          kReserve * (habit.writes < 1.5 ? static_cast<double>(length) * length / each : habit.bytes);
      habit.to_log = left >= std::max<double>(length, wanted);
      habit.small_to_log = !habit.to_log && habit.writes >= 1.5;
    }
  } else if (static_cast<double>(habit.since_bytes) > kHabitMax * habit.bytes) {
    habit.to_log = habit.small_to_log = false;
  }
  habit.since_bytes += length;
  ++habit.since_writes;
}

// Whether a write goes to the log because a sync will wait for it.
bool Engine::syncs_want_log(const Op& op) {
  SyncHabit& habit = shared_.files[op.file].habit;
  if (!habit.to_log && !habit.small_to_log) return false;
  if (shared_.log.exhausted() || budget_left() < op.length) {
    habit.small_to_log |= std::exchange(habit.to_log, false);
    return false;
  }
  return habit.to_log || op.length * habit.writes < kShort * habit.bytes;
}

// A device that has become quick is found out: one group in a while goes there.
bool Engine::log_answers_sooner(const FileState& file) const {
  const SyncHabit& habit = file.habit;
  const double backing = habit.direct_ns > 0 ? habit.direct_ns : file_sync_ns_;
  if (habit.direct_ns > 0 && static_cast<double>(shared_.now - habit.measured) > kTryAgain * habit.direct_ns)
    return false;
  return records_.usable() && backing > kWorth * log_sync_ns_;
}

// A sync of the file is asked for.
Engine::PendingSync Engine::watched_sync(Ticket ticket, FileIndex index) {
  SyncHabit& habit = shared_.files[index].habit;
  if (habit.since_bytes > 0) {
    const double weight = habit.bytes == 0 ? 1 : kHabitSmoothing;
    habit.bytes += (static_cast<double>(habit.since_bytes) - habit.bytes) * weight;
    habit.writes += (habit.since_writes - habit.writes) * weight;
    habit.since_bytes = habit.since_writes = 0;
  }
  divert_for_sync(index);
  PendingSync pending = {ticket,
                         index,
                         shared_.files[index].epochs.close(),
                         0,
                         PendingSync::Stage::kWrites,
                         0,
                         shared_.stats.flush_errors};
  pending.began = shared_.now;
  pending.direct = std::exchange(habit.direct, false);
  measured_syncs_ += pending.direct;
  return pending;
}

// What its caller has waited, by what it waited for.
void Engine::sync_answered(const PendingSync& done, Code code) {
  if (done.direct) {
    --measured_syncs_;
    measured_sync_end_ = shared_.now;
  }
  if (code != Code::kOk) return;
  if (done.direct) {
    SyncHabit& habit = shared_.files[done.file].habit;
    // What is old says nothing any more.
    if (static_cast<double>(shared_.now - habit.measured) > kTryAgain * habit.direct_ns) habit.direct_ns = 0;
    smooth_sync(&habit.direct_ns, shared_.now - done.began);
    habit.measured = shared_.now;
    smooth_sync(&file_sync_ns_, shared_.now - done.began);
  } else if (done.logged) {
    smooth_sync(&log_sync_ns_, shared_.now - done.began);
  }
}

// Somebody waits, or has just waited, for the backing device: what is flushed now takes it from them. The system writes the bytes of a
// flush with the next sync of their file.
bool Engine::somebody_waits_for_backing() const {
  return measured_syncs_ + backing_reads_ > 0 || syncs_.backing.awaited() ||
         shared_.now - std::max(measured_sync_end_, backing_read_end_) < kQuietNs;
}

}  // namespace swale::tier
