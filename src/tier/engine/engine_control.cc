// Engine: truncate and unlink, which need a file for themselves; sync and drain, which wait for others; recovery.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

void Engine::truncate(Ticket ticket, FileIndex file, uint64_t size, Nanos now) {
  if (size >= kFileBytesMax || shared_.files[file].unlinked)
    return shared_.outbox.answer(ticket, file, Code::kInvalidArgument);
  set_now(now);
  const OpIndex index = shared_.ops.make(Op::Kind::kTruncate, ticket, file);
  shared_.ops[index].offset = size;
  conflicts(shared_.ops[index]) ? block(index) : begin(index);
  pump();
}

void Engine::unlink(Ticket ticket, FileIndex file, Nanos now) {
  if (shared_.files[file].unlinked) return shared_.outbox.answer(ticket, file, Code::kNotFound);
  set_now(now);
  const OpIndex index = shared_.ops.make(Op::Kind::kUnlink, ticket, file);
  conflicts(shared_.ops[index]) ? block(index) : begin(index);
  pump();
}

// A truncate has an intent and an end in the log, if the log has anything behind the new size: recovery repeats an intent without
// an end. The end says whether the backing file was cut. Ids are never used again, so an unlink needs no record.
void Engine::begin_barrier(OpIndex index) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  file.barrier = index;
  op.stage = Op::Stage::kBarrier;
  op.needs_record = op.kind == Op::Kind::kTruncate && records_.state() != LogRecords::State::kGone &&
                    file.map.overlaps(op.offset, kFileBytesMax);
  op.step = op.needs_record ? Op::Step::kSpace : Op::Step::kQuiesce;
  barriers_.push_back(index);
  flusher_.hurry();
  shared_.rare_work = true;
  if (op.needs_record && !records_.usable()) return end_barrier(index, Code::kIoError);
  if (op.needs_record) records_.wait_for_space(index);
  if (!op.needs_record) file.no_flush = true;
}

// Takes space for both records of the barrier that is the first of log_waiters_. Flushes go on while it waits. False: wait.
bool Engine::take_barrier_space(OpIndex index) {
  Op& op = shared_.ops[index];
  const auto address = shared_.log.reserve(2 * records_.control_bytes(), shared_.now);
  if (!address) return false;
  op.address = *address;
  op.held_segment = shared_.log.segment_of(*address);
  op.step = Op::Step::kQuiesce;
  shared_.files[op.file].no_flush = true;
  return true;
}

void Engine::advance_barrier(OpIndex index) {
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
  append_control(index, RecordType::kTruncate);
}

void Engine::append_control(OpIndex index, RecordType type) {
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

void Engine::control_appended(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  if (code != Code::kOk) {
    log_failed(code);
    return control_failed(index, code);
  }
  records_.logged(op.last_sequence);
  shared_.files[op.file].log_sync = syncs_.log.started() + 1;
  op.step = op.step == Op::Step::kIntent ? Op::Step::kIntentSync : Op::Step::kEndSync;
  // The cancelled intent may be durable already, by a sync of the log. A power cut must not leave the intent alone: recovery would
  // cut off what a sync of the file has covered, by a truncate that its caller knows to have failed.
  if (shared_.page_cache() && !op.cancelled) return control_durable(index);
  syncs_.log.await(index, shared_.now);
}

// The record of the barrier counts from now on. After an intent, nothing has changed yet: the backing device may still refuse.
void Engine::control_durable(OpIndex index) {
  Op& op = shared_.ops[index];
  records_.settle(op.last_sequence);
  if (op.step == Op::Step::kEndSync) return end_barrier(index, op.failure);
  emit_cut(index);
}

// The record of the barrier may stand in the log, and may not. Without an intent nothing is cut: a recovery that did not find it would
// bring back what the log has behind the cut, and nothing else.
void Engine::control_failed(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  if (op.step == Op::Step::kIntent || op.step == Op::Step::kIntentSync) op.failure = code;
  wait_for_abandonment(index);
}

// The backing file is to be cut, or removed.
void Engine::emit_cut(OpIndex index) {
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
void Engine::backing_changed(OpIndex index, Code code) {
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

// Or has failed. If the backing file was not cut, the file is as it was, and the intent is cancelled. A cut that has happened must
// become durable: only its sync has failed. So must one that recovery repeats, because its process may have cut the file.
void Engine::backing_change_durable(OpIndex index) {
  Op& op = shared_.ops[index];
  const bool begun = op.repeated || op.told || op.step == Op::Step::kBackingSync;
  if (op.failure != Code::kOk && op.kind == Op::Kind::kTruncate && begun)
    return cut_refused(index, op.failure);
  if (!op.needs_record || shared_.options.canaries.skip_truncate_end) return end_barrier(index, op.failure);
  if (!records_.usable()) return wait_for_abandonment(index);
  if (!op.repeated) {
    op.step = Op::Step::kEnd;
    return append_control(
        index, op.failure == Code::kOk ? RecordType::kTruncateDone : RecordType::kTruncateCancelled);
  }
  // What is left of the file lies before its new end: flushes of it cannot undo the truncate.
  shared_.files[op.file].no_flush = false;
  flusher_.restart_pass();
  op.step = Op::Step::kErasure;
  --shared_.log.at(op.held_segment).appending;
  shared_.segments_changed = true;
}

// The file is cut for who reads it, but perhaps not durably; or recovery repeats a truncate, and what the backing file still has
// behind the cut is stale. Until the backing file is cut and synced, the truncate goes on without its caller, its intent stays in the
// log, and nobody may write to the file: a write behind the cut would bring the stale bytes back, and a recovery would cut it off.
void Engine::cut_refused(OpIndex index, Code code) {
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
  refuse_blocked(op.file, code);
}

void Engine::refuse_blocked(FileIndex file, Code code) {
  for (size_t i = 0; i < blocked_.size();) {
    const OpIndex index = blocked_[i];
    if (shared_.ops[index].file != file) {
      ++i;
      continue;
    }
    blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
    --shared_.files[file].blocked;
    shared_.ops.finish(index, code);
  }
}

// Whether a backing file has stale bytes behind a cut that it has refused.
bool Engine::cuts_refused() const {
  return std::any_of(barriers_.begin(), barriers_.end(), [this](OpIndex index) {
    const Op& op = shared_.ops[index];
    return op.told && (op.step == Op::Step::kRefused || op.step == Op::Step::kBacking ||
                       op.step == Op::Step::kBackingSync);
  });
}

// The log has failed, and the intent may stand in it without an end: until the log counts no more, nothing is written to the
// file that recovery would cut off. What a flush has to write lies before the cut, or nothing was cut.
void Engine::wait_for_abandonment(OpIndex index) {
  Op& op = shared_.ops[index];
  records_.settle(op.last_sequence);
  release_held_segment(&op);
  op.step = Op::Step::kAbandonment;
  shared_.files[op.file].no_flush = false;
  flusher_.restart_pass();
  records_.wait_for_abandonment(index);
}

// The segment is free: so are the intents in it.
void Engine::end_repeated(uint32_t segment) {
  for (size_t i = 0; i < barriers_.size();) {
    const OpIndex index = barriers_[i];
    const bool ends =
        shared_.ops[index].step == Op::Step::kErasure && shared_.ops[index].held_segment == segment;
    if (ends) {
      // It may still wait for the list of losses, in its place among the barriers: it ends once.
      shared_.ops[index].held_segment = ~uint32_t{0};
      shared_.segments_changed = true;
      end_barrier(index, shared_.ops[index].failure);
    }
    i += !ends;
  }
}

void Engine::release_held_segment(Op* op) {
  if (op->held_segment >= shared_.log.count()) return;
  if (op->step != Op::Step::kErasure) --shared_.log.at(op->held_segment).appending;
  op->held_segment = ~uint32_t{0};
  shared_.segments_changed = true;
}

void Engine::end_barrier(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  FileState& file = shared_.files[op.file];
  records_.settle(op.last_sequence);
  if (code == Code::kOk && op.kind == Op::Kind::kTruncate && losses_.any(op.file, op.offset, kFileBytesMax))
    return wait_for_losses(index);  // without a log, no record says that they are cut off
  release_held_segment(&op);
  file.barrier = kNoOp;
  if (file.no_flush) {
    file.no_flush = false;
    flusher_.restart_pass();
  }
  barriers_.erase(std::find(barriers_.begin(), barriers_.end(), index));
  flusher_.end_hurry();
  if (!cuts_refused()) cut_failures_ = 0;
  if (!blocked_.empty()) retry_blocked_ = true;
  op.told ? shared_.ops.free(index) : shared_.ops.finish(index, code);
}

void Engine::sync(Ticket ticket, FileIndex file, Nanos now) {
  set_now(now);
  const bool direct = redirector_.sync_begins(file);
  divert_for_sync(file);
  pending_syncs_.push_back({.ticket = ticket,
                            .file = file,
                            .epoch = shared_.files[file].epochs.close(),
                            .errors = shared_.stats.flush_errors,
                            .began = shared_.now,
                            .direct = direct});
  shared_.rare_work = true;
  pump();
}

void Engine::drain(Ticket ticket, Nanos now) {
  set_now(now);
  pending_syncs_.push_back(
      {.ticket = ticket, .epoch = shared_.ops.epochs().close(), .errors = shared_.stats.flush_errors});
  ++drains_;
  flusher_.hurry();
  shared_.rare_work = true;
  pump();
}

bool Engine::advance_syncs() {
  bool any = false;
  for (size_t i = 0; i < pending_syncs_.size();) {
    Code result = Code::kOk;
    if (!advance_sync(&pending_syncs_[i], &result)) {
      ++i;
      continue;
    }
    const PendingSync done = pending_syncs_[i];
    pending_syncs_.erase(pending_syncs_.begin() + static_cast<ptrdiff_t>(i));
    if (done.file == kNoFile) {
      --drains_;
      flusher_.end_hurry();
    } else {
      if (done.direct) costs_.sync_ends();
      if (result == Code::kOk && done.direct)
        redirector_.sync_waited(done.file, done.began);
      else if (result == Code::kOk && done.logged)
        costs_.log_synced(shared_.now - done.began);
      const Code lost = std::exchange(shared_.files[done.file].deferred, Code::kOk);
      if (lost != Code::kOk) result = lost;
    }
    shared_.outbox.answer(done.ticket, done.file, result);
    any = true;
  }
  return any;
}

bool Engine::advance_sync(PendingSync* pending, Code* result) {
  const bool drain = pending->file == kNoFile;
  switch (pending->stage) {
    case PendingSync::Stage::kWrites:
      if (!(drain ? shared_.ops.epochs() : shared_.files[pending->file].epochs).finished(pending->epoch))
        return false;
      if (drain) shared_.log.seal_active();
      if (drain) shared_.segments_changed = true;
      pending->ordinal = shared_.log.ordinal();
      pending->number = drain ? 0 : syncs_.want_log_sync(shared_.files[pending->file]);
      pending->file_number = drain ? 0 : syncs_.want_file_sync(pending->file);
      pending->logged = pending->number > syncs_.log.done();
      pending->stage = PendingSync::Stage::kLog;
      [[fallthrough]];
    case PendingSync::Stage::kLog:
      if (drain) {
        if (shared_.stats.flush_errors > pending->errors) {
          *result = Code::kIoError;
          return true;
        }
        for (uint32_t i = 0; i < shared_.log.count(); ++i)
          if (shared_.log.at(i).live() && shared_.log.at(i).ordinal <= pending->ordinal &&
              shared_.log.at(i).dirty_bytes > 0)
            return false;
        if (cuts_refused()) return false;  // the next attempt tells
      } else {
        if (shared_.files[pending->file].syncs_done < pending->file_number) return false;
        if (syncs_.log.done() >= pending->number || records_.state() == LogRecords::State::kGone) return true;
        // A log that has failed makes nothing durable any more: its abandonment does, unless the backing device fails too.
        if (records_.usable() || shared_.stats.flush_errors == pending->errors) return false;
        *result = Code::kIoError;
        return true;
      }
      pending->number = syncs_.backing.want(shared_.now);
      pending->errors = shared_.stats.flush_errors;
      pending->stage = PendingSync::Stage::kBacking;
      [[fallthrough]];
    case PendingSync::Stage::kBacking:
      if (syncs_.backing.done() < pending->number) return false;
      if (shared_.stats.flush_errors > pending->errors) *result = Code::kIoError;
      return true;
  }
  return false;
}

Nanos Engine::next_event() const {
  Nanos next = kForever;
  const auto at = [&next](Nanos time) { next = std::min(next, time); };
  at(syncs_.next_event());
  if (shared_.log.active() < shared_.log.count()) {
    const Segment& active = shared_.log.at(shared_.log.active());
    at(active.last_write + shared_.options.idle_flush_ns);
    at(active.first_write + shared_.options.age_flush_ns);
  }
  at(flusher_.next_event());
  if (losses_.retry() > shared_.now) at(losses_.retry());
  if (cut_retry_ > shared_.now && cuts_refused()) at(cut_retry_);
  at(records_.mark_due());
  return next == kForever ? next : clock_ + std::max<Nanos>(0, next - shared_.now);
}

}  // namespace swale::tier
