// Engine: the way of one write: its range, the device that takes it, the answer.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

// Whether an op that came before stands in the way of this one. Of those that are blocked, only the ones before `op` in
// blocked_ are looked at (all of them, for one that is not there yet).
bool Engine::conflicts(const Op& op) const {
  const File& file = files_[op.file];
  if (file.barrier != kNoOp) return true;
  if (op.kind != Op::Kind::kWrite) {
    if (file.held > 0) return true;
  } else if (!options_.canaries.overlap_in_queue &&
             held_.overlaps(op.file, op.offset, op.offset + op.length)) {
    return true;
  }
  if (file.blocked == 0) return false;
  for (const OpIndex index : blocked_) {
    const Op& before = ops_[index];
    if (&before == &op) break;
    if (before.file != op.file) continue;
    if (before.kind != Op::Kind::kWrite || op.kind != Op::Kind::kWrite) return true;
    if (before.offset < op.offset + op.length && op.offset < before.offset + before.length &&
        !options_.canaries.overlap_in_queue)
      return true;
  }
  return false;
}

void Engine::block(OpIndex index) {
  ops_[index].stage = Op::Stage::kBlocked;
  ++files_[ops_[index].file].blocked;
  blocked_.push_back(index);
}

void Engine::retry_blocked() {
  retry_blocked_ = false;
  for (size_t i = 0; i < blocked_.size();) {
    const OpIndex index = blocked_[i];
    if (conflicts(ops_[index])) {
      if (absorb(index)) {
        blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
        --files_[ops_[index].file].blocked;
      } else {
        ++i;
      }
      continue;
    }
    blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
    --files_[ops_[index].file].blocked;
    if (files_[ops_[index].file].unlinked) {
      finish(index, Code::kNotFound);
      continue;
    }
    begin(index);
  }
}

void Engine::begin(OpIndex index) {
  Op& op = ops_[index];
  if (op.kind != Op::Kind::kWrite) return begin_barrier(index);
  if (hold(index)) return begin_write(index);
  assert(options_.canaries.overlap_in_queue);  // two of one range at a time, of which one can hold it
  to_backing(index);
}

// Holds the range of a write, if nobody does.
bool Engine::hold(OpIndex index) {
  const Op& op = ops_[index];
  if (!held_.add_if_free(index, op.file, op.offset, op.offset + op.length)) return false;
  ++files_[op.file].held;
  return true;
}

// The range is held.
void Engine::begin_write(OpIndex index) { route(index); }

// The write's bytes are where reads find them, so the file reaches to its end. Not before: a write that fails leaves the size.
void Engine::extend_to(const Op& op) {
  File& file = files_[op.file];
  file.size = std::max(file.size, op.offset + op.length);
}

void Engine::route(OpIndex index) {
  Op& op = ops_[index];
  const File& file = files_[op.file];
  op.at = file.map.locate(op.offset);
  const bool overlap = !options_.canaries.overwrite_directly && file.map.valid(op.at) &&
                       file.map.get(op.at).offset < op.offset + op.length;
  if (!log_usable()) {
    if (overlap && log_state_ == LogState::kGone) {  // nothing but losses is in the map
      op.over_loss = true;
      return to_backing(index);
    }
    if (overlap) {
      op.stage = Op::Stage::kAbandonWait;
      abandon_waiters_.push_back(index);
      return;
    }
    return to_backing(index);
  }
  if (overlap && !op.stream_to_ssd) stats_.forced_bytes += op.length;
  if (!overlap && !wants_log(op)) return to_backing(index);
  if (log_waiters_.empty() && take_log_space(&op)) return append(index);
  if (overlap || waits_when_full(op)) {
    ++stats_.log_waits;
    op.stage = Op::Stage::kLogWait;
    log_waiters_.push_back(index);
    return;
  }
  ++stats_.overflows;
  to_backing(index);
}

bool Engine::take_log_space(Op* op) {
  const uint64_t bytes = record_space(op->length, options_.log_alignment);
  const auto address = log_.reserve(bytes, now_);
  if (!address) return false;
  op->address = *address;
  op->segment = log_.active();
  log_.seal_if_full(bytes);
  return true;
}

void Engine::serve_log_waiters() {
  // Nothing makes space while the backing device fails: who waits is told. A single failure may pass.
  constexpr uint32_t kFlushFailuresMax = 3;
  while (!log_waiters_.empty()) {
    const OpIndex index = log_waiters_.front();
    Op& op = ops_[index];
    // Segments that have the intents of refused truncates cannot be erased; once all else is flushed, waiting helps no more.
    const bool held = cut_failures_ >= kFlushFailuresMax && log_.dirty_bytes() == 0 && cuts_refused();
    const bool hopeless = flush_failures_ >= kFlushFailuresMax || held;
    if (op.kind != Op::Kind::kWrite) {
      const bool taken = take_barrier_space(index);
      if (!taken && !hopeless) return;
      log_waiters_.pop_front();
      if (!taken) end_barrier(index, flush_failure_);
      continue;
    }
    const bool taken = take_log_space(&op);
    const bool direct = !taken && (flush_retry_ > now_ || held) &&
                        !files_[op.file].map.overlaps(op.offset, op.offset + op.length);
    if (!taken && !direct && !hopeless) return;
    log_waiters_.pop_front();
    if (taken) {
      append(index);
    } else if (direct) {
      to_backing(index);
    } else {
      release_range(index);
      finish(index, flush_failure_);
    }
  }
}

void Engine::append(OpIndex index) {
  Op& op = ops_[index];
  op.stage = Op::Stage::kAppending;
  stats_.ssd_bytes += op.length;
  wear_bytes_ += op.length;
  Action& action = emit(Action::Kind::kAppend, op.file, op.ticket, index);
  action.record = {.offset = op.offset, .length = op.length};
  fill_header(&action.record, op.file, op.address, op.segment);
  op.sequence = action.record.sequence;
}

// What a record says of itself, but for its type, offset and length. Its append begins.
void Engine::fill_header(RecordHeader* record, FileIndex file, uint64_t address, uint32_t segment) {
  const uint64_t through = settled_.through(sequence_);
  record->segment = segment;
  record->generation = log_.at(segment).generation;
  record->unsettled =
      static_cast<uint32_t>(std::min<uint64_t>(sequence_ - through, RecordHeader::kSettledUnknown));
  record->sequence = ++sequence_;
  record->file = file == kNoFile ? 0 : files_[file].id;
  record->address = address;
  marked_ = through;
  settled_.begin(sequence_);
  settle_due_ = kForever;
}

void Engine::appended(OpIndex index, Code code) {
  Op& op = ops_[index];
  const uint32_t segment = op.segment;
  const bool last = --log_.at(segment).appending == 0;
  if (segment != log_.active() && (last || flush_segment_ >= log_.count())) segments_changed_ = true;
  if (segment < in_batch_.size() && in_batch_[segment]) restart_pass();  // it may lie behind the cursor
  if (code != Code::kOk) {
    // The record may stand in the log all the same: the write waits until the log counts no more.
    settled_.end(op.sequence);
    ++stats_.append_errors;
    log_failed(code);
    op.stage = Op::Stage::kAbandonWait;
    abandon_waiters_.push_back(index);
    return;
  }
  File& file = files_[op.file];
  const uint64_t payload = op.address + kRecordHeaderBytes + checks_bytes_of(op.length);
  file.map.replace({op.offset, payload, op.length, ExtentState::kDirty}, op.at,
                   [&](const Extent& extent) { made_void(&file, extent, segment); });
  log_.add_dirty(segment, op.length);
  extend_to(op);
  last_logged_ = std::max(last_logged_, op.sequence);
  file.log_sync = log_lane_.started + 1;
  release_range(index);
  if (page_cache()) {
    settled_.end(op.sequence);
    return finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  log_sync_waiters_.emplace_back(want_sync(&log_lane_, sync_due()), index);
}

void Engine::to_backing(OpIndex index) {
  Op& op = ops_[index];
  // A flush under way would carry older bytes; but what it flushes is in the map, or newer bytes of the log are (rule 2).
  assert(options_.canaries.overwrite_directly || options_.canaries.overlap_in_queue ||
         !is_flushed(op.file, op.offset, op.offset + op.length));
  const Piece piece{Piece::Source::kRequest, op.length, op.offset, 0, op.ticket, index};
  const uint64_t at = position(op.file, op.offset);
  if (elevator_.merge(op.file, at, piece)) return admitted(index);
  if (slot_waiters_.empty() && !elevator_.full()) {
    elevator_.add(op.file, at, piece);
    return admitted(index);
  }
  ++stats_.slot_waits;
  op.stage = Op::Stage::kSlotWait;
  slot_waiters_.push_back(index);
}

// In the elevator: with the page cache as the promise, the shared queue keeps the payload from now on.
void Engine::admitted(OpIndex index) {
  Op& op = ops_[index];
  op.stage = Op::Stage::kQueued;
  stats_.direct_bytes += op.length;
  files_[op.file].habit.direct = true;
  direct_times_[direct_next_] = now_;
  direct_next_ = direct_next_ + 1 == direct_times_.size() ? 0 : direct_next_ + 1;
  // A device that fails now may refuse this write too: its writer waits for the answer.
  if (!page_cache() || op.acknowledged || op.over_loss || flush_failures_ > 0) return;
  op.sequence = ++sequence_;
  op.acknowledged = true;
  extend_to(op);
  Action& action = emit(Action::Kind::kAcknowledge, op.file, op.ticket);
  action.queued = true;
  action.record = {.type = RecordType::kQueued,
                   .sequence = op.sequence,
                   .file = files_[op.file].id,
                   .offset = op.offset,
                   .length = op.length};
}

void Engine::direct_done(OpIndex index, Code code) {
  Op& op = ops_[index];
  if (code != Code::kOk) {
    ++stats_.direct_errors;
    const bool again = op.address != 0;  // has been in the log's hands before
    if (!again && log_usable() && options_.policy != Policy::kBacking && log_waiters_.empty() &&
        take_log_space(&op))
      return append(index);  // the log takes what the backing device does not
    if (op.acknowledged) {
      files_[op.file].deferred = code;
      lose_range(
          op.file, op.offset, op.offset + op.length,
          {.sequence = op.sequence, .address = LostRange::kNoAddress, .reason = LossReason::kNotWritten});
    }
    release_range(index);
    return finish(index, code);
  }
  extend_to(op);
  release_range(index);
  if (page_cache()) {
    if (op.over_loss) return wait_for_losses(index);
    return finish(index, Code::kOk);
  }
  op.stage = Op::Stage::kSyncWait;
  backing_sync_waiters_.emplace_back(want_sync(&backing_lane_, sync_due()), index);
}

void Engine::release_range(OpIndex index) {
  files_[ops_[index].file].held -= held_.remove(index);
  if (!blocked_.empty()) retry_blocked_ = true;
}

}  // namespace swale::tier
