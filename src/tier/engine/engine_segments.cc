// Engine: erasing segments, syncs of both devices, and the end of a log that fails.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

// Moves sealed segments on towards free, and chooses what is flushed next.
void Engine::advance_segments() {
  shared_.segments_changed = false;
  shared_.log.forget_sealed();
  for (uint32_t i = 0; i < shared_.log.count(); ++i) {
    Segment& segment = shared_.log.at(i);
    switch (segment.state) {
      case Segment::State::kSealed:
        if (segment.dirty_bytes > 0 || segment.appending > 0 || !records_.usable()) break;
        if (!shared_.options.canaries.skip_shields && !shared_.log.may_go_before_others(i)) break;
        segment.sync_number = shared_.options.canaries.erase_unsynced ? 0 : syncs_.backing.want(shared_.now);
        segment.state = Segment::State::kBackingSync;
        [[fallthrough]];
      case Segment::State::kBackingSync:
        if (segment.dirty_bytes > 0) {  // the sync failed, and what was flushed is dirty again
          segment.state = Segment::State::kSealed;
          shared_.segments_changed = true;
          break;
        }
        if (syncs_.backing.done() < segment.sync_number) break;
        segment.durable = true;
        segment.sync_number = syncs_.log.want(shared_.now);
        segment.state = Segment::State::kLogSync;
        break;
      case Segment::State::kLogSync:
        if (syncs_.log.done() < segment.sync_number || segment.pins > 0) break;
        // A loss, or its end, that only this segment's records tell.
        if (!losses_.saved() && !shared_.options.canaries.erase_unsaved) break;
        segment.state = Segment::State::kErasing;
        ++segment.generation;
        shared_.outbox.emit({.kind = Action::Kind::kErase,
                             .id = i,
                             .size = records_.sequence(),
                             .settled = records_.settled_through(),
                             .generation = segment.generation});
        break;
      case Segment::State::kErasureSync:
        if (syncs_.log.done() < segment.sync_number) break;
        flusher_.remove_clean(i);
        shared_.log.freed(i);
        if (barriers_.any()) barriers_.segment_erased(i);
        ++shared_.stats.erasures;
        shared_.segments_changed = true;  // others may have waited for this one
        break;
      default:
        break;
    }
  }
  flusher_.select_segment();
}

void Engine::end_sync_waiter(OpIndex index, Code code) {
  const Op& op = shared_.ops[index];
  if (op.is_write())
    writes_.synced(index, code);
  else if (op.step == Op::Step::kBackingSync)
    barriers_.backing_synced(index, code);
  else
    barriers_.record_durable(index);
}

void Engine::end_covered(SyncLane* lane) {
  for (OpIndex index = lane->take_covered(); index != kNoOp; index = lane->take_covered())
    end_sync_waiter(index, Code::kOk);
}

void Engine::log_synced(Code code) {
  syncs_.log.end();
  if (code == Code::kOk && !shared_.page_cache()) costs_.log_synced(shared_.now - syncs_.log.began());
  if (code != Code::kOk) log_failed(code);
  // The system tells a failure once: later syncs of a log that has failed say nothing of what came before.
  if (records_.state() == LogRecords::State::kReadOnly || records_.state() == LogRecords::State::kAbandoning)
    return fail_log_sync_waiters(code == Code::kOk ? Code::kIoError : code);
  syncs_.log.cover();
  shared_.segments_changed = true;
  end_covered(&syncs_.log);
}

void Engine::backing_synced(Code code) {
  syncs_.backing.end();
  shared_.segments_changed = true;
  // In the modes in which writes wait for it, this is what a direct write costs.
  if (code == Code::kOk && syncs_.backing.awaited()) {
    costs_.backing_synced(shared_.now - syncs_.backing.began(), 0);
    costs_.wait_ended();
  }
  if (code != Code::kOk) backing_sync_failed(code);
  syncs_.backing.cover();
  end_covered(&syncs_.backing);
}

// Of all files. Nothing that was written since the last success is certain; the log still has what was
// flushed.
void Engine::backing_sync_failed(Code code) {
  flusher_.backing_failed();
  for (FileState& file : shared_.files) {
    flusher_.dirty_again(&file);
    if (shared_.page_cache()) file.deferred = code;
  }
  // The system tells a failure once.
  for (const OpIndex index : syncs_.backing.take_waiters()) end_sync_waiter(index, code);
}

void Engine::file_synced(FileIndex index, Code code) {
  FileState& file = shared_.files[index];
  syncs_.end_file_sync(index);
  if (code != Code::kOk) {
    flusher_.backing_failed();
    flusher_.dirty_again(&file);
    file.deferred = code;
    // A later sync of all files would know nothing of this failure.
    for (const OpIndex waiter : syncs_.backing.take_waiters(index)) end_sync_waiter(waiter, code);
  }
  syncs_.start_file_sync(index);
}

void Engine::fail_log_sync_waiters(Code code) {
  for (const OpIndex index : syncs_.log.take_waiters()) {
    if (shared_.ops[index].is_write())
      writes_.synced(index, code);
    else
      barriers_.record_failed(index, code);
  }
}

// The SSD refuses writes: from now on the log is only read. What it has is flushed; what overlaps it waits
// for that; then the log is abandoned, so that no later recovery takes its records for news.
void Engine::log_failed(Code code) {
  if (!records_.usable()) return;
  records_.fail();
  shared_.rare_work = true;
  shared_.log.seal_active();
  for (const OpIndex index : records_.take_waiters()) {
    if (shared_.ops[index].is_write())
      writes_.route(index);
    else
      barriers_.end(index, code);
  }
  barriers_.log_failed(code);
  fail_log_sync_waiters(code);
  for (uint32_t i = 0; i < shared_.log.count(); ++i) {  // no erasure goes on
    Segment& segment = shared_.log.at(i);
    if (segment.live()) segment.state = Segment::State::kSealed;
  }
  shared_.segments_changed = true;
}

void Engine::advance_abandon() {
  if (records_.state() != LogRecords::State::kReadOnly || shared_.log.dirty_bytes() > 0 ||
      flusher_.failing() || !losses_.saved())
    return;
  for (uint32_t i = 0; i < shared_.log.count(); ++i)
    if (shared_.log.at(i).appending > 0) return;
  if (!flusher_.idle()) return;
  if (syncs_.backing.in_flight() || syncs_.of_files() > 0)
    return;                              // a failure of theirs makes flushed bytes dirty again
  if (barriers_.cuts_refused()) return;  // their intents would be gone
  records_.begin_abandonment();
  shared_.outbox.emit({.kind = Action::Kind::kAbandonLog});
}

void Engine::abandoned(Code code) {
  records_.end_abandonment(code == Code::kOk);
  for (FileIndex index = 0; index < shared_.files.size(); ++index) syncs_.start_file_sync(index);
  if (code != Code::kOk) return backing_sync_failed(code);  // tried again later
  for (FileState& file : shared_.files)
    file.map.remove_if([](const Extent& extent) { return extent.state != ExtentState::kLost; });
  for (uint32_t i = 0; i < shared_.log.count() && barriers_.any(); ++i) barriers_.segment_erased(i);
  flusher_.stop();
  for (const OpIndex index : records_.take_abandon_waiters())
    shared_.ops[index].is_write() ? writes_.route(index) : barriers_.end(index, shared_.ops[index].failure);
}

}  // namespace swale::tier
