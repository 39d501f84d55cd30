// Engine: the way of one write: its range, the device that takes it, the answer.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

// Whether an op that came before stands in the way of this one. Of those that are blocked, only the ones before `op` in
// blocked_ are looked at (all of them, for one that is not there yet).
bool Engine::conflicts(const Op& op) const {
  const FileState& file = shared_.files[op.file];
  if (file.barrier != kNoOp) return true;
  if (op.kind != Op::Kind::kWrite) {
    if (file.held > 0) return true;
  } else if (!shared_.options.canaries.overlap_in_queue &&
             held_.overlaps(op.file, op.offset, op.offset + op.length)) {
    return true;
  }
  if (file.blocked == 0) return false;
  for (const OpIndex index : blocked_) {
    const Op& before = shared_.ops[index];
    if (&before == &op) break;
    if (before.file != op.file) continue;
    if (before.kind != Op::Kind::kWrite || op.kind != Op::Kind::kWrite) return true;
    if (before.offset < op.offset + op.length && op.offset < before.offset + before.length &&
        !shared_.options.canaries.overlap_in_queue)
      return true;
  }
  return false;
}

void Engine::block(OpIndex index) {
  shared_.ops[index].stage = Op::Stage::kBlocked;
  ++shared_.files[shared_.ops[index].file].blocked;
  blocked_.push_back(index);
}

void Engine::retry_blocked() {
  retry_blocked_ = false;
  for (size_t i = 0; i < blocked_.size();) {
    const OpIndex index = blocked_[i];
    if (conflicts(shared_.ops[index])) {
      if (absorb(index)) {
        blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
        --shared_.files[shared_.ops[index].file].blocked;
      } else {
        ++i;
      }
      continue;
    }
    blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
    --shared_.files[shared_.ops[index].file].blocked;
    if (shared_.files[shared_.ops[index].file].unlinked) {
      shared_.ops.finish(index, Code::kNotFound);
      continue;
    }
    begin(index);
  }
}

void Engine::begin(OpIndex index) {
  Op& op = shared_.ops[index];
  if (op.kind != Op::Kind::kWrite) return begin_barrier(index);
  if (hold(index)) return begin_write(index);
  assert(shared_.options.canaries.overlap_in_queue);  // two of one range at a time, of which one can hold it
  to_backing(index);
}

// Holds the range of a write, if nobody does.
bool Engine::hold(OpIndex index) {
  const Op& op = shared_.ops[index];
  if (!held_.add_if_free(index, op.file, op.offset, op.offset + op.length)) return false;
  ++shared_.files[op.file].held;
  return true;
}

// The range is held.
void Engine::begin_write(OpIndex index) { route(index); }

// The write's bytes are where reads find them, so the file reaches to its end. Not before: a write that fails leaves the size.
void Engine::extend_to(const Op& op) {
  FileState& file = shared_.files[op.file];
  file.size = std::max(file.size, op.offset + op.length);
}

void Engine::route(OpIndex index) {
  Op& op = shared_.ops[index];
  const FileState& file = shared_.files[op.file];
  op.at = file.map.locate(op.offset);
  const bool overlap = !shared_.options.canaries.overwrite_directly && file.map.valid(op.at) &&
                       file.map.get(op.at).offset < op.offset + op.length;
  if (!records_.usable()) {
    if (overlap && records_.state() == LogRecords::State::kGone) {  // nothing but losses is in the map
      op.over_loss = true;
      return to_backing(index);
    }
    if (overlap) {
      op.stage = Op::Stage::kAbandonWait;
      records_.wait_for_abandonment(index);
      return;
    }
    return to_backing(index);
  }
  if (overlap && !op.stream_to_ssd) shared_.stats.forced_bytes += op.length;
  if (!overlap && !redirector_.wants_log(op)) return to_backing(index);
  if (records_.waiters().empty() && records_.take_space(&op)) return append(index);
  // While the backing device fails, nothing would make space.
  if (overlap || (redirector_.waits_when_full(op) && !flusher_.failing())) {
    ++shared_.stats.log_waits;
    op.stage = Op::Stage::kLogWait;
    records_.wait_for_space(index);
    return;
  }
  ++shared_.stats.overflows;
  to_backing(index);
}

void Engine::serve_log_waiters() {
  // Nothing makes space while the backing device fails: who waits is told. A single failure may pass.
  constexpr uint32_t kFlushFailuresMax = 3;
  while (!records_.waiters().empty()) {
    const OpIndex index = records_.waiters().front();
    Op& op = shared_.ops[index];
    // Segments that have the intents of refused truncates cannot be erased; once all else is flushed, waiting helps no more.
    const bool held = cut_failures_ >= kFlushFailuresMax && shared_.log.dirty_bytes() == 0 && cuts_refused();
    const bool hopeless = flusher_.failures() >= kFlushFailuresMax || held;
    if (op.kind != Op::Kind::kWrite) {
      const bool taken = take_barrier_space(index);
      if (!taken && !hopeless) return;
      records_.pop_waiter();
      if (!taken) end_barrier(index, flusher_.failure());
      continue;
    }
    const bool taken = records_.take_space(&op);
    const bool direct = !taken && (flusher_.failing() || held) &&
                        !shared_.files[op.file].map.overlaps(op.offset, op.offset + op.length);
    if (!taken && !direct && !hopeless) return;
    records_.pop_waiter();
    if (taken) {
      append(index);
    } else if (direct) {
      to_backing(index);
    } else {
      release_range(index);
      shared_.ops.finish(index, flusher_.failure());
    }
  }
}

void Engine::append(OpIndex index) {
  Op& op = shared_.ops[index];
  op.stage = Op::Stage::kAppending;
  shared_.stats.ssd_bytes += op.length;
  redirector_.appended(op.length);
  Action& action = shared_.outbox.emit(Action::Kind::kAppend, op.file, op.ticket, index);
  action.record = {.offset = op.offset, .length = op.length};
  records_.fill_header(&action.record, op.file, op.address, op.segment);
  op.sequence = action.record.sequence;
}

void Engine::appended(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  const uint32_t segment = op.segment;
  const bool last = --shared_.log.at(segment).appending == 0;
  if (segment != shared_.log.active() && (last || !flusher_.flushing())) shared_.segments_changed = true;
  if (flusher_.in_batch(segment)) flusher_.restart_pass();  // it may lie behind the cursor
  if (code != Code::kOk) {
    // The record may stand in the log all the same: the write waits until the log counts no more.
    records_.settle(op.sequence);
    ++shared_.stats.append_errors;
    log_failed(code);
    op.stage = Op::Stage::kAbandonWait;
    records_.wait_for_abandonment(index);
    return;
  }
  FileState& file = shared_.files[op.file];
  const uint64_t payload = op.address + kRecordHeaderBytes + checks_bytes_of(op.length);
  file.map.replace({op.offset, payload, op.length, ExtentState::kDirty}, op.at,
                   [&](const Extent& extent) { flusher_.made_void(&file, extent, segment); });
  shared_.log.add_dirty(segment, op.length);
  extend_to(op);
  records_.logged(op.sequence);
  file.log_sync = syncs_.log.started() + 1;
  release_range(index);
  if (shared_.page_cache()) {
    records_.settle(op.sequence);
    return shared_.ops.finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  syncs_.log.await(index, shared_.sync_due());
}

void Engine::to_backing(OpIndex index) {
  Op& op = shared_.ops[index];
  // A flush under way would carry older bytes; but what it flushes is in the map, or newer bytes of the log are (rule 2).
  assert(shared_.options.canaries.overwrite_directly || shared_.options.canaries.overlap_in_queue ||
         !flusher_.is_flushed(op.file, op.offset, op.offset + op.length));
  if (queue_.place(index, queue_.waiters().empty())) return admitted(index);
  queue_.wait(index);
}

// In the elevator: with the page cache as the promise, the shared queue keeps the payload from now on.
void Engine::admitted(OpIndex index) {
  Op& op = shared_.ops[index];
  op.stage = Op::Stage::kQueued;
  shared_.stats.direct_bytes += op.length;
  shared_.files[op.file].habit.direct = true;
  queue_.note_direct();
  // A device that fails now may refuse this write too: its writer waits for the answer.
  if (!shared_.page_cache() || op.acknowledged || op.over_loss || flusher_.failures() > 0) return;
  op.sequence = records_.draw_sequence();
  op.acknowledged = true;
  extend_to(op);
  Action& action = shared_.outbox.emit(Action::Kind::kAcknowledge, op.file, op.ticket);
  action.queued = true;
  action.record = {.type = RecordType::kQueued,
                   .sequence = op.sequence,
                   .file = shared_.files[op.file].id,
                   .offset = op.offset,
                   .length = op.length};
}

void Engine::direct_done(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  if (code != Code::kOk) {
    ++shared_.stats.direct_errors;
    const bool again = op.address != 0;  // has been in the log's hands before
    if (!again && records_.usable() && shared_.options.policy != Policy::kBacking &&
        records_.waiters().empty() && records_.take_space(&op))
      return append(index);  // the log takes what the backing device does not
    if (op.acknowledged) {
      shared_.files[op.file].deferred = code;
      losses_.add(
          op.file, op.offset, op.offset + op.length,
          {.sequence = op.sequence, .address = LostRange::kNoAddress, .reason = LossReason::kNotWritten});
    }
    release_range(index);
    return shared_.ops.finish(index, code);
  }
  extend_to(op);
  release_range(index);
  if (shared_.page_cache()) {
    if (op.over_loss) return wait_for_losses(index);
    return shared_.ops.finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  syncs_.backing.await(index, shared_.sync_due());
}

void Engine::release_range(OpIndex index) {
  shared_.files[shared_.ops[index].file].held -= held_.remove(index);
  if (!blocked_.empty()) retry_blocked_ = true;
}

}  // namespace swale::tier
