#include "tier/engine/barriers.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::tier {

void Barriers::begin(OpIndex index) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  file.barrier = index;
  assert(!op.is_write() && file.barrier == index && file.held == 0);
  op.stage = Op::Stage::kBarrier;
  op.needs_record = op.kind == Op::Kind::kTruncate && records_.state() != LogRecords::State::kGone &&
                    file.map.overlaps(op.offset, kFileBytesMax);
  op.step = op.needs_record ? Op::Step::kSpace : Op::Step::kQuiesce;
  begun_.push_back(index);
  records_.hurry();
  shared_.rare_work = true;
  if (op.needs_record && !records_.usable()) return end(index, Code::kIoError);
  if (op.needs_record) records_.wait_for_space(index);
  if (!op.needs_record) file.no_flush = true;
}

// Flushes of the file go on while it waits.
bool Barriers::take_space(OpIndex index) {
  Op& op = shared_.ops[index];
  const auto address = shared_.log.reserve(2 * records_.control_bytes(), shared_.now);
  if (!address) return false;
  op.address = *address;
  op.held_segment = shared_.log.segment_of(*address);
  op.step = Op::Step::kQuiesce;
  shared_.files[op.file].no_flush = true;
  return true;
}

void Barriers::advance(OpIndex index) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  if (op.step == Op::Step::kRefused && cut_retry_ <= shared_.now) return emit_cut(index);
  if (op.step != Op::Step::kQuiesce || file.flushing > 0) return;
  if (!op.needs_record) return emit_cut(index);
  if (shared_.log.at(op.held_segment).ordinal != shared_.log.ordinal()) {
    // The record would make newer segments' bytes void: it must stand in the newest one.
    release_held_segment(&op);
    file.no_flush = false;
    flusher_.restart_pass();
    op.step = Op::Step::kSpace;
    records_.wait_for_space(index);
    return;
  }
  op.step = Op::Step::kIntent;
  append_record(index, RecordType::kTruncate);
}

void Barriers::append_record(OpIndex index, RecordType type) {
  Op& op = shared_.ops[index];
  const bool intent = type == RecordType::kTruncate;
  op.cancelled = type == RecordType::kTruncateCancelled;
  Action action{.kind = Action::Kind::kAppend, .id = index, .file = op.file, .ticket = op.ticket};
  action.record.type = type;
  action.record.offset = intent ? op.offset : op.sequence;
  const uint64_t address = op.address + (intent ? 0 : records_.control_bytes());
  records_.fill_header(&action.record, op.file, address, shared_.log.segment_of(address));
  op.last_sequence = action.record.sequence;
  if (intent) op.sequence = action.record.sequence;
  shared_.outbox.emit(action);
}

void Barriers::appended(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  if (code != Code::kOk) {
    assert(!records_.usable());
    return record_failed(index, code);
  }
  records_.logged(op.last_sequence);
  shared_.files[op.file].log_sync = syncs_.log.started() + 1;
  op.step = op.step == Op::Step::kIntent ? Op::Step::kIntentSync : Op::Step::kEndSync;
  // The cancelled intent may be durable already, by a sync of the log. A power cut must not leave the intent
  // alone: recovery would cut off what a sync of the file has covered, by a truncate that its caller knows to
  // have failed.
  if (shared_.page_cache() && !op.cancelled) return record_durable(index);
  syncs_.log.await(index, shared_.now);
}

// The record of the barrier counts from now on. After an intent, nothing has changed yet: the backing device
// may still refuse.
void Barriers::record_durable(OpIndex index) {
  Op& op = shared_.ops[index];
  records_.settle(op.last_sequence);
  if (op.step == Op::Step::kEndSync) return end(index, op.failure);
  emit_cut(index);
}

// The record of the barrier may stand in the log, and may not. Without an intent nothing is cut: a recovery
// that did not find it would bring back what the log has behind the cut, and nothing else.
void Barriers::record_failed(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  if (op.step == Op::Step::kIntent || op.step == Op::Step::kIntentSync) op.failure = code;
  wait_for_abandonment(index);
}

// The backing file is to be cut, or removed.
void Barriers::emit_cut(OpIndex index) {
  Op& op = shared_.ops[index];
  op.step = Op::Step::kBacking;
  shared_.outbox.emit(
      {.kind = op.kind == Op::Kind::kTruncate ? Action::Kind::kTruncate : Action::Kind::kUnlink,
       .id = index,
       .file = op.file,
       .ticket = op.ticket,
       .size = op.offset});
}

// The backing file is cut or gone.
void Barriers::backing_changed(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  if (code != Code::kOk) {
    op.failure = code;
    return backing_change_durable(index);
  }
  op.failure = Code::kOk;  // of an attempt before
  if (op.kind == Op::Kind::kUnlink) {
    flusher_.carve(op.file, 0, kFileBytesMax, shared_.log.count());
    file.unlinked = true;
    file.size = 0;
  } else {
    // What recovery repeats was carved when the intent was replayed.
    if (op.needs_record && !op.repeated)
      flusher_.carve(op.file, op.offset, kFileBytesMax, shared_.log.segment_of(op.address));
    file.size = op.offset;
  }
  if (shared_.page_cache()) return backing_change_durable(index);
  op.step = Op::Step::kBackingSync;
  syncs_.backing.await(index, shared_.now);
}

// Or has failed. If the backing file was not cut, the file is as it was, and the intent is cancelled. A cut
// that has happened must become durable: only its sync has failed. So must one that recovery repeats, because
// its process may have cut the file.
void Barriers::backing_change_durable(OpIndex index) {
  Op& op = shared_.ops[index];
  const bool begun = op.repeated || op.told || op.step == Op::Step::kBackingSync;
  if (op.failure != Code::kOk && op.kind == Op::Kind::kTruncate && begun)
    return cut_refused(index, op.failure);
  if (!op.needs_record || shared_.options.canaries.skip_truncate_end) return end(index, op.failure);
  if (!records_.usable()) return wait_for_abandonment(index);
  if (!op.repeated) {
    op.step = Op::Step::kEnd;
    return append_record(
        index, op.failure == Code::kOk ? RecordType::kTruncateDone : RecordType::kTruncateCancelled);
  }
  // What is left of the file lies before its new end: flushes of it cannot undo the truncate.
  shared_.files[op.file].no_flush = false;
  flusher_.restart_pass();
  op.step = Op::Step::kErasure;
  --shared_.log.at(op.held_segment).appending;
  shared_.segments_changed = true;
}

// The file is cut for who reads it, but perhaps not durably; or recovery repeats a truncate, and what the
// backing file still has behind the cut is stale. Until the backing file is cut and synced, the truncate goes
// on without its caller, its intent stays in the log, and nobody may write to the file: a write behind the
// cut would bring the stale bytes back, and a recovery would cut it off.
void Barriers::cut_refused(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  op.step = Op::Step::kRefused;
  ++shared_.stats.flush_errors;
  ++cut_failures_;
  cut_retry_ = shared_.now + shared_.options.retry_ns;
  file.no_flush = false;  // as of a truncate that recovery repeats
  flusher_.restart_pass();
  if (!std::exchange(op.told, true)) {
    shared_.ops.leave_epochs(op);
    shared_.outbox.answer(std::exchange(op.ticket, kRecoveryTicket), op.file, code);
  }
  order_.refuse_blocked(op.file, code);
}

bool Barriers::cuts_refused() const {
  return std::any_of(begun_.begin(), begun_.end(), [this](OpIndex index) {
    const Op& op = shared_.ops[index];
    return op.told && (op.step == Op::Step::kRefused || op.step == Op::Step::kBacking ||
                       op.step == Op::Step::kBackingSync);
  });
}

// The log has failed, and the intent may stand in it without an end: until the log counts no more, nothing is
// written to the file that recovery would cut off. What a flush has to write lies before the cut, or nothing
// was cut.
void Barriers::wait_for_abandonment(OpIndex index) {
  Op& op = shared_.ops[index];
  records_.settle(op.last_sequence);
  release_held_segment(&op);
  op.step = Op::Step::kAbandonment;
  shared_.files[op.file].no_flush = false;
  flusher_.restart_pass();
  records_.wait_for_abandonment(index);
}

void Barriers::segment_erased(uint32_t segment) {
  for (size_t i = 0; i < begun_.size();) {
    const OpIndex index = begun_[i];
    const bool ends =
        shared_.ops[index].step == Op::Step::kErasure && shared_.ops[index].held_segment == segment;
    if (ends) {
      // It may still wait for the list of losses, in its place among the barriers: it ends once.
      shared_.ops[index].held_segment = ~uint32_t{0};
      shared_.segments_changed = true;
      end(index, shared_.ops[index].failure);
    }
    i += !ends;
  }
}

void Barriers::release_held_segment(Op* op) {
  if (op->held_segment >= shared_.log.count()) return;
  if (op->step != Op::Step::kErasure) --shared_.log.at(op->held_segment).appending;
  op->held_segment = ~uint32_t{0};
  shared_.segments_changed = true;
}

void Barriers::end(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  assert(file.barrier == index);
  records_.settle(op.last_sequence);
  // without a log, no record says that they are cut off
  if (code == Code::kOk && op.kind == Op::Kind::kTruncate && losses_.any(op.file, op.offset, kFileBytesMax))
    if (!losses_.replaced_without_record(index)) return;
  release_held_segment(&op);
  file.barrier = kNoOp;
  if (file.no_flush) {
    file.no_flush = false;
    flusher_.restart_pass();
  }
  begun_.erase(std::find(begun_.begin(), begun_.end(), index));
  records_.end_hurry();
  if (!cuts_refused()) cut_failures_ = 0;
  order_.retry_later();
  op.told ? shared_.ops.free(index) : shared_.ops.finish(index, code);
}

void Barriers::backing_synced(OpIndex index, Code code) {
  assert(shared_.ops[index].step == Op::Step::kBackingSync);
  shared_.ops[index].failure = code;
  backing_change_durable(index);
}

void Barriers::log_failed(Code code) {
  for (const OpIndex index : std::vector(begun_))
    if (shared_.ops[index].needs_record && shared_.ops[index].step == Op::Step::kQuiesce) end(index, code);
}

void Barriers::repeat(OpIndex index, const RecordHeader& intent) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  assert(file.barrier == kNoOp && intent.type == RecordType::kTruncate);
  op.stage = Op::Stage::kBarrier;
  op.offset = intent.offset;
  op.sequence = intent.sequence;
  op.needs_record = true;
  op.repeated = true;
  op.held_segment = shared_.log.segment_of(intent.address);
  ++shared_.log.at(op.held_segment).appending;
  file.size = intent.offset;  // nothing of the file is younger
  file.barrier = index;
  file.no_flush = true;
  begun_.push_back(index);
  records_.hurry();
  shared_.rare_work = true;
  emit_cut(index);
}

}  // namespace swale::tier
