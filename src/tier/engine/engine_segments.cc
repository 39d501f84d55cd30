// Engine: erasing segments, syncs of both devices, and the end of a log that fails.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

// Seals what is idle or old, and says until when nothing can be: a segment that becomes active later is younger.
void Engine::seal_old() {
  if (log_.active() == LogSpace::kNone) {
    seal_after_ = now_ + std::min(options_.idle_flush_ns, options_.age_flush_ns);
    return;
  }
  const Segment& active = log_.at(log_.active());
  seal_after_ =
      std::min(active.last_write + options_.idle_flush_ns, active.first_write + options_.age_flush_ns);
  if (now_ >= seal_after_) log_.seal_active();
}

// Moves sealed segments on towards free, and chooses what is flushed next.
void Engine::advance_segments() {
  segments_changed_ = false;
  log_.forget_sealed();
  for (uint32_t i = 0; i < log_.count(); ++i) {
    Segment& segment = log_.at(i);
    switch (segment.state) {
      case Segment::State::kSealed:
        if (segment.dirty_bytes > 0 || segment.appending > 0 || !log_usable()) break;
        if (!options_.canaries.skip_shields && !log_.may_go_before_others(i)) break;
        segment.sync_number = options_.canaries.erase_unsynced ? 0 : want_sync(&backing_lane_, now_);
        segment.state = Segment::State::kBackingSync;
        [[fallthrough]];
      case Segment::State::kBackingSync:
        if (segment.dirty_bytes > 0) {  // the sync failed, and what was flushed is dirty again
          segment.state = Segment::State::kSealed;
          segments_changed_ = true;
          break;
        }
        if (backing_lane_.done < segment.sync_number) break;
        segment.durable = true;
        segment.sync_number = want_sync(&log_lane_, now_);
        segment.state = Segment::State::kLogSync;
        break;
      case Segment::State::kLogSync:
        if (log_lane_.done < segment.sync_number || segment.pins > 0) break;
        // A loss, or its end, that only this segment's records tell.
        if (!losses_saved() && !options_.canaries.erase_unsaved) break;
        segment.state = Segment::State::kErasing;
        ++segment.generation;
        emit({.kind = Action::Kind::kErase,
              .id = i,
              .size = sequence_,
              .settled = settled_.through(sequence_),
              .generation = segment.generation});
        break;
      case Segment::State::kErasureSync:
        if (log_lane_.done < segment.sync_number) break;
        remove_clean(i);
        log_.freed(i);
        if (!barriers_.empty()) end_repeated(i);
        ++stats_.erasures;
        segments_changed_ = true;  // others may have waited for this one
        break;
      default:
        break;
    }
  }
  select_segment();
}

void Engine::remove_clean(uint32_t segment) {
  // The recovered queue has all addresses from its begin to the end of logs; losses lie beyond.
  const uint64_t begin = log_.begin_of(segment);
  const uint64_t end = segment == queue_segment_ ? kLossBase : begin + log_.segment_bytes();
  for (File& file : files_)
    if (file.map.size() > 0) file.map.remove_addresses(begin, end);
}

// The number of the next sync of this device that begins: it covers all that is completed now.
uint64_t Engine::want_sync(SyncLane* lane, Nanos due) {
  lane->due = lane->wanted ? std::min(lane->due, due) : due;
  lane->wanted = rare_work_ = true;
  return lane->started + 1;
}

void Engine::start_syncs() {
  const auto start = [this](SyncLane* lane, Action::Kind kind) {
    if (!lane->wanted || lane->in_flight || now_ < lane->due || waits_for_abandonment(*lane)) return;
    lane->wanted = false;
    lane->in_flight = true;
    lane->began = now_;
    ++lane->started;
    emit({.kind = kind});
  };
  start(&log_lane_, Action::Kind::kSyncLog);
  start(&backing_lane_, Action::Kind::kSyncBacking);
}

void Engine::end_sync_waiters(std::deque<std::pair<uint64_t, OpIndex>>* waiters, uint64_t done, Code code) {
  while (!waiters->empty() && waiters->front().first <= done) {
    const OpIndex index = waiters->front().second;
    waiters->pop_front();
    if (ops_[index].kind == Op::Kind::kWrite) {
      settled_.end(ops_[index].sequence);
      if (ops_[index].over_loss && code == Code::kOk) {
        wait_for_losses(index);
        continue;
      }
      finish(index, code);
    } else if (ops_[index].step == Op::Step::kBackingSync) {
      ops_[index].failure = code;
      backing_change_durable(index);
    } else {
      control_durable(index);
    }
  }
}

void Engine::log_synced(Code code) {
  log_lane_.in_flight = false;
  if (code == Code::kOk && !page_cache()) smooth_sync(&log_sync_ns_, now_ - log_lane_.began);
  if (code != Code::kOk) log_failed(code);
  // The system tells a failure once: later syncs of a log that has failed say nothing of what came before.
  if (log_state_ == LogState::kReadOnly || log_state_ == LogState::kAbandoning)
    return fail_log_sync_waiters(code == Code::kOk ? Code::kIoError : code);
  log_lane_.done = log_lane_.started;
  segments_changed_ = true;
  end_sync_waiters(&log_sync_waiters_, log_lane_.done, Code::kOk);
}

void Engine::backing_synced(Code code) {
  backing_lane_.in_flight = false;
  segments_changed_ = true;
  // In the modes in which writes wait for it, this is what a direct write costs.
  if (code == Code::kOk && !backing_sync_waiters_.empty()) {
    smooth_sync(&file_sync_ns_, now_ - backing_lane_.began);
    measured_sync_end_ = now_;
  }
  if (code != Code::kOk) backing_sync_failed(code);
  backing_lane_.done = backing_lane_.started;
  end_sync_waiters(&backing_sync_waiters_, backing_lane_.done, Code::kOk);
}

// Of all files. Nothing that was written since the last success is certain; the log still has what was flushed.
void Engine::backing_sync_failed(Code code) {
  ++stats_.flush_errors;
  flush_retry_ = now_ + options_.retry_ns;
  for (File& file : files_) {
    dirty_again(&file);
    if (page_cache()) file.deferred = code;
  }
  end_sync_waiters(&backing_sync_waiters_, ~uint64_t{0}, code);  // the system tells a failure once
}

// What of the file was flushed may not be on the backing device. What a sync has covered is: its segment may be half erased, or
// the queue that it stands for gone.
void Engine::dirty_again(File* file) {
  for (auto at = file->map.locate(0); file->map.valid(at); at = file->map.next(at)) {
    const Extent extent = file->map.get(at);
    const uint32_t segment = log_.segment_of(extent.address);
    if (extent.state != ExtentState::kClean || log_.at(segment).durable) continue;
    file->map.set_state(at, ExtentState::kDirty);
    log_.add_dirty(segment, extent.length);
    segments_changed_ = true;  // it may be the only one to be flushed
  }
  restart_pass();
}

// The number of the sync of the log that covers the file's records: it is over, under way, or wanted from now on; of a log
// that has failed, it may never be.
uint64_t Engine::want_log_sync(const File& file) {
  if (options_.canaries.sync_without_log) return 0;
  if (log_usable() && file.log_sync > log_lane_.started) want_sync(&log_lane_, now_);
  return file.log_sync;
}

// The number of the next sync of this file that begins.
uint64_t Engine::want_file_sync(FileIndex index) {
  File& file = files_[index];
  const uint64_t number = file.syncs_started + 1;
  file.sync_wanted = true;
  start_file_sync(index);
  return number;
}

void Engine::start_file_sync(FileIndex index) {
  File& file = files_[index];
  if (!file.sync_wanted || file.syncs_started > file.syncs_done || log_state_ == LogState::kAbandoning)
    return;
  file.sync_wanted = false;
  ++file.syncs_started;
  ++file_syncs_;
  emit({.kind = Action::Kind::kSyncFile, .id = index, .file = index});
}

void Engine::file_synced(FileIndex index, Code code) {
  File& file = files_[index];
  file.syncs_done = file.syncs_started;
  --file_syncs_;
  if (code != Code::kOk) {
    ++stats_.flush_errors;
    flush_retry_ = now_ + options_.retry_ns;
    dirty_again(&file);
    file.deferred = code;
    // A later sync of all files would know nothing of this failure.
    std::deque<std::pair<uint64_t, OpIndex>> failed;
    for (const auto& waiter : std::exchange(backing_sync_waiters_, {}))
      (ops_[waiter.second].file == index ? failed : backing_sync_waiters_).push_back(waiter);
    end_sync_waiters(&failed, ~uint64_t{0}, code);
  }
  start_file_sync(index);
}

void Engine::fail_log_sync_waiters(Code code) {
  for (const auto& [number, index] : std::exchange(log_sync_waiters_, {})) {
    if (ops_[index].kind != Op::Kind::kWrite) {
      control_failed(index, code);
      continue;
    }
    settled_.end(ops_[index].sequence);
    finish(index, code);
  }
}

// The SSD refuses writes: from now on the log is only read. What it has is flushed; what overlaps it waits for that; then
// the log is abandoned, so that no later recovery takes its records for news.
void Engine::log_failed(Code code) {
  if (log_state_ != LogState::kGood) return;
  log_state_ = LogState::kReadOnly;
  rare_work_ = true;
  log_.seal_active();
  for (const OpIndex index : std::exchange(log_waiters_, {})) {
    Op& op = ops_[index];
    if (op.kind == Op::Kind::kWrite) {
      route(index);
    } else {
      end_barrier(index, code);
    }
  }
  for (const OpIndex index : std::vector(barriers_))  // that have no intent in the log yet
    if (ops_[index].needs_record && ops_[index].step == Op::Step::kQuiesce) end_barrier(index, code);
  fail_log_sync_waiters(code);
  for (uint32_t i = 0; i < log_.count(); ++i) {  // no erasure goes on
    Segment& segment = log_.at(i);
    if (segment.live()) segment.state = Segment::State::kSealed;
  }
  segments_changed_ = true;
}

std::optional<std::vector<SegmentSeal>> Engine::segment_seals() const {
  if (!log_usable()) return std::nullopt;
  std::vector<SegmentSeal> seals;
  for (uint32_t i = 0; i < options_.segment_count; ++i) {
    const Segment& segment = log_.at(i);
    if (segment.appending > 0) return std::nullopt;
    const bool erased = segment.state == Segment::State::kFree || segment.state == Segment::State::kErasing ||
                        segment.state == Segment::State::kErasureSync;
    seals.push_back({segment.generation, erased ? std::vector<uint32_t>() : log_.sealed_records(i)});
  }
  return seals;
}

void Engine::advance_abandon() {
  if (log_state_ != LogState::kReadOnly || log_.dirty_bytes() > 0 || flush_retry_ > now_ || !losses_saved())
    return;
  for (uint32_t i = 0; i < log_.count(); ++i)
    if (log_.at(i).appending > 0) return;
  if (free_pieces_.size() < pieces_.size()) return;
  if (backing_lane_.in_flight || file_syncs_ > 0)
    return;                    // a failure of theirs makes flushed bytes dirty again
  if (cuts_refused()) return;  // their intents would be gone
  log_state_ = LogState::kAbandoning;
  emit({.kind = Action::Kind::kAbandonLog});
}

void Engine::abandoned(Code code) {
  log_state_ = code == Code::kOk ? LogState::kGone : LogState::kReadOnly;
  for (FileIndex index = 0; index < files_.size(); ++index) start_file_sync(index);
  if (code != Code::kOk) return backing_sync_failed(code);  // tried again later
  for (File& file : files_)
    file.map.remove_if([](const Extent& extent) { return extent.state != ExtentState::kLost; });
  for (uint32_t i = 0; i < log_.count() && !barriers_.empty(); ++i) end_repeated(i);
  flush_segment_ = log_.count();
  for (const OpIndex index : std::exchange(abandon_waiters_, {}))
    ops_[index].kind == Op::Kind::kWrite ? route(index) : end_barrier(index, ops_[index].failure);
}

}  // namespace swale::tier
