#include "tier/engine/writes.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {

void Writes::write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length) {
  assert(length > 0 && length <= kWriteBytesMax && offset <= kFileBytesMax - length);
  const OpIndex index = shared_.ops.make(Op::Kind::kWrite, ticket, file);
  Op& op = shared_.ops[index];
  op.offset = offset;
  op.length = length;
  op.stream_to_ssd = redirector_.arrived(file, offset, length);
  const FileState& on = shared_.files[file];
  if (on.barrier == kNoOp && on.blocked == 0 && order_.hold(index)) {
    route(index);
  } else if (!order_.conflicts(op)) {
    begin(index);
  } else if (!absorb(index)) {
    ++shared_.stats.overlap_waits;
    order_.block(index);
    divert_overlapping(shared_.ops[index]);
  }
}

void Writes::change(OpIndex index) {
  assert(!shared_.ops[index].is_write());
  if (order_.conflicts(shared_.ops[index]))
    order_.block(index);
  else
    barriers_.begin(index);
}

void Writes::begin(OpIndex index) {
  Op& op = shared_.ops[index];
  if (!op.is_write()) return barriers_.begin(index);
  if (order_.hold(index)) return route(index);
  assert(shared_.options.canaries.overlap_in_queue);  // two of one range at a time, of which one can hold it
  to_backing(index);
}

void Writes::retry_blocked() {
  order_.begin_retry();
  for (size_t i = 0; i < order_.blocked();) {
    const OpIndex index = order_.blocked_at(i);
    const Op& op = shared_.ops[index];
    if (order_.conflicts(op)) {
      if (absorb(index))
        order_.unblock(i);
      else
        ++i;
      continue;
    }
    order_.unblock(i);
    if (shared_.files[op.file].unlinked)
      shared_.ops.finish(index, Code::kNotFound);
    else
      begin(index);
  }
}

void Writes::route(OpIndex index) {
  Op& op = shared_.ops[index];
  const FileState& file = shared_.files[op.file];
  op.at = file.map.locate(op.offset);
  const bool overlap = !shared_.options.canaries.overwrite_directly && file.map.valid(op.at) &&
                       file.map.get(op.at).offset < op.end();
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

void Writes::serve_log_waiters() {
  // Nothing makes space while the backing device fails: who waits is told. A single failure may pass.
  constexpr uint32_t kFlushFailuresMax = 3;
  while (!records_.waiters().empty()) {
    const OpIndex index = records_.waiters().front();
    Op& op = shared_.ops[index];
    // Segments that have the intents of refused truncates cannot be erased; once all else is flushed, waiting
    // helps no more.
    const bool held = barriers_.cut_failures() >= kFlushFailuresMax && shared_.log.dirty_bytes() == 0 &&
                      barriers_.cuts_refused();
    const bool hopeless = flusher_.failures() >= kFlushFailuresMax || held;
    if (!op.is_write()) {
      const bool taken = barriers_.take_space(index);
      if (!taken && !hopeless) return;
      records_.pop_waiter();
      if (!taken) barriers_.end(index, flusher_.failure());
      continue;
    }
    const bool taken = records_.take_space(&op);
    const bool direct =
        !taken && (flusher_.failing() || held) && !shared_.files[op.file].map.overlaps(op.offset, op.end());
    if (!taken && !direct && !hopeless) return;
    records_.pop_waiter();
    if (taken) {
      append(index);
    } else if (direct) {
      to_backing(index);
    } else {
      order_.release(index);
      shared_.ops.finish(index, flusher_.failure());
    }
  }
}

void Writes::append(OpIndex index) {
  Op& op = shared_.ops[index];
  assert(op.is_write() && records_.usable());
  op.stage = Op::Stage::kAppending;
  shared_.stats.ssd_bytes += op.length;
  redirector_.appended(op.length);
  Action& action = shared_.outbox.emit(Action::Kind::kAppend, op.file, op.ticket, index);
  action.record = {.offset = op.offset, .length = op.length};
  records_.fill_header(&action.record, op.file, op.address, op.segment);
  op.sequence = action.record.sequence;
}

void Writes::appended(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  assert(op.stage == Op::Stage::kAppending);
  const uint32_t segment = op.segment;
  const bool last = --shared_.log.at(segment).appending == 0;
  if (segment != shared_.log.active() && (last || !flusher_.flushing())) shared_.segments_changed = true;
  if (flusher_.in_batch(segment)) flusher_.restart_pass();  // it may lie behind the cursor
  if (code != Code::kOk) {
    // The record may stand in the log all the same: the write waits until the log counts no more.
    records_.settle(op.sequence);
    ++shared_.stats.append_errors;
    assert(!records_.usable());
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
  order_.release(index);
  if (shared_.page_cache()) {
    records_.settle(op.sequence);
    return shared_.ops.finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  syncs_.log.await(index, shared_.sync_due());
}

void Writes::to_backing(OpIndex index) {
  [[maybe_unused]] const Op& op = shared_.ops[index];
  // A flush under way would carry older bytes; but what it flushes is in the map, or newer bytes of the log
  // are (rule 2).
  assert(shared_.options.canaries.overwrite_directly || shared_.options.canaries.overlap_in_queue ||
         !flusher_.is_flushed(op.file, op.offset, op.end()));
  if (queue_.place(index, queue_.waiters().empty())) return admitted(index);
  queue_.wait(index);
}

// In the elevator: with the page cache as the promise, the shared queue keeps the payload from now on.
void Writes::admitted(OpIndex index) {
  Op& op = shared_.ops[index];
  assert(op.is_write());
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

void Writes::written(OpIndex index, Code code) {
  Op& op = shared_.ops[index];
  assert(op.stage == Op::Stage::kQueued);
  if (code != Code::kOk) {
    ++shared_.stats.direct_errors;
    const bool again = op.address != 0;  // has been in the log's hands before
    if (!again && records_.usable() && shared_.options.policy != Policy::kBacking &&
        records_.waiters().empty() && records_.take_space(&op))
      return append(index);  // the log takes what the backing device does not
    if (op.acknowledged) {
      shared_.files[op.file].deferred = code;
      losses_.add(
          op.file, op.offset, op.end(),
          {.sequence = op.sequence, .address = LostRange::kNoAddress, .reason = LossReason::kNotWritten});
    }
    order_.release(index);
    return shared_.ops.finish(index, code);
  }
  extend_to(op);
  order_.release(index);
  if (shared_.page_cache()) {
    if (op.over_loss) return finish_over_loss(index);
    return shared_.ops.finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  syncs_.backing.await(index, shared_.sync_due());
}

void Writes::synced(OpIndex index, Code code) {
  const Op& op = shared_.ops[index];
  assert(op.stage == Op::Stage::kSyncWait);
  records_.settle(op.sequence);
  if (op.over_loss && code == Code::kOk) return finish_over_loss(index);
  shared_.ops.finish(index, code);
}

// It has replaced what was lost, and no record says so: the list must.
void Writes::finish_over_loss(OpIndex index) {
  if (losses_.replaced_without_record(index)) shared_.ops.finish(index, Code::kOk);
}

void Writes::admit() {
  for (bool progress = true; progress;) {
    progress = false;
    if (!queue_.waiters().empty()) {
      const OpIndex index = queue_.waiters().front();
      if (queue_.place(index, true)) {
        queue_.pop_waiter();
        admitted(index);
        progress = true;
      }
    }
    progress |= flusher_.place_first();
  }
}

// The write's bytes are where reads find them, so the file reaches to its end. Not before: a write that fails
// leaves the size.
void Writes::extend_to(const Op& op) {
  FileState& file = shared_.files[op.file];
  file.size = std::max(file.size, op.end());
}

}  // namespace swale::tier
