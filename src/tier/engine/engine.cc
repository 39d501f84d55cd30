#include "tier/engine/engine.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {
Engine::Engine(const Options& options) : shared_(options) {}

FileIndex Engine::open_file(uint64_t id, uint64_t base, uint64_t size) {
  return shared_.files.open(id, base, size);
}

bool Engine::close_file(FileIndex index) {
  if (!shared_.files[index].idle() || sync_requests_.any_of(index)) return false;
  shared_.files.close(index);
  return true;
}

uint64_t Engine::oldest_segment() const {
  uint64_t oldest = shared_.log.ordinal() + 1;
  for (uint32_t i = 0; i < shared_.log.count(); ++i)
    if (shared_.log.at(i).live()) oldest = std::min(oldest, shared_.log.at(i).ordinal);
  return oldest;
}

// A clock that is set back, or ahead and back again, must stop nothing that waits for a time: only steps
// ahead count.
void Engine::step_clock(Nanos now) {
  const Nanos elapsed = now - clock_;
  if (elapsed < 0 && shared_.options.canaries.latch_clock) return;
  clock_ = now;
  if (elapsed < 0) return;
  if (flusher_.paused()) shared_.stats.paused_ns += elapsed;
  if (!records_.waiters().empty()) shared_.stats.stalled_ns += elapsed;
  shared_.now += elapsed;
}

void Engine::write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length, Nanos now) {
  const uint64_t space = record_space(length, shared_.options.log_alignment) +
                         2 * segment_tail_bytes(shared_.options.log_alignment);
  if (length == 0 || length > kWriteBytesMax || offset > kFileBytesMax - length ||
      space > shared_.options.segment_bytes || shared_.files[file].unlinked)
    return shared_.outbox.answer(ticket, file, length == 0 ? Code::kOk : Code::kInvalidArgument);
  set_now(now);
  writes_.write(ticket, file, offset, length);
  pump();
}

void Engine::truncate(Ticket ticket, FileIndex file, uint64_t size, Nanos now) {
  if (size >= kFileBytesMax || shared_.files[file].unlinked)
    return shared_.outbox.answer(ticket, file, Code::kInvalidArgument);
  set_now(now);
  const OpIndex index = shared_.ops.make(Op::Kind::kTruncate, ticket, file);
  shared_.ops[index].offset = size;
  writes_.change(index);
  pump();
}

void Engine::unlink(Ticket ticket, FileIndex file, Nanos now) {
  if (shared_.files[file].unlinked) return shared_.outbox.answer(ticket, file, Code::kNotFound);
  set_now(now);
  const OpIndex index = shared_.ops.make(Op::Kind::kUnlink, ticket, file);
  writes_.change(index);
  pump();
}

void Engine::sync(Ticket ticket, FileIndex file, Nanos now) {
  set_now(now);
  const Redirector::Awaited awaited = redirector_.sync_begins(file);
  writes_.divert_for_sync(file);
  sync_requests_.sync(ticket, file, awaited);
  pump();
}

void Engine::drain(Ticket ticket, Nanos now) {
  set_now(now);
  sync_requests_.drain(ticket);
  pump();
}

void Engine::completed(Action::Kind kind, uint32_t id, Code code, Nanos now) {
  set_now(now);
  switch (kind) {
    case Action::Kind::kAppend:
      appended(id, code);
      break;
    case Action::Kind::kReadLog:
      piece_read(id, code);
      break;
    case Action::Kind::kWriteBacking:
      slot_written(id, code);
      break;
    case Action::Kind::kSyncLog:
      log_synced(code);
      break;
    case Action::Kind::kSyncBacking:
      backing_synced(code);
      break;
    case Action::Kind::kSyncFile:
      file_synced(id, code);
      break;
    case Action::Kind::kErase:
      if (!records_.usable()) break;
      if (code != Code::kOk) {
        log_failed(code);
      } else {
        shared_.log.at(id).state = Segment::State::kErasureSync;
        shared_.log.at(id).sync_number = syncs_.log.want(shared_.now);
      }
      shared_.segments_changed = true;
      break;
    case Action::Kind::kTruncate:
    case Action::Kind::kUnlink:
      barriers_.backing_changed(id, code);
      break;
    case Action::Kind::kAbandonLog:
      abandoned(code);
      break;
    case Action::Kind::kSaveLosses:
      losses_written(code);
      break;
    case Action::Kind::kAcknowledge:
    case Action::Kind::kRelease:
      break;
  }
  pump();
}

void Engine::appended(uint32_t id, Code code) {
  if (id == kNoOp) return mark_appended(code);
  if (code != Code::kOk) log_failed(code);
  if (shared_.ops[id].is_write())
    writes_.appended(id, code);
  else
    barriers_.appended(id, code);
}

void Engine::piece_read(uint32_t piece, Code code) {
  if (code != Code::kOk && flusher_.read_failed()) log_failed(code);
  flusher_.piece_read(piece, code);
}

void Engine::read_damaged(uint32_t piece, const std::vector<FileRange>& ranges, Nanos now) {
  set_now(now);
  flusher_.read_damaged(piece, ranges);
  pump();
}

void Engine::slot_written(uint32_t index, Code code) {
  const Slot& slot = queue_.written(index, code);
  for (const Piece& piece : slot.pieces) {
    if (piece.source == Piece::Source::kRequest)
      writes_.written(piece.op, code);
    else
      flusher_.piece_done(piece.op, code);
  }
  queue_.release(index);
}

void Engine::advance(Nanos now) {
  set_now(now);
  pump();
}

// Everything that can go on by now. Each part does nothing, cheaply, if there is nothing for it to do. What
// makes space for an earlier part begins again.
void Engine::pump() {
  assert(shared_.rare_work || !needs_rare_work());
  bool again;
  do {
    if (order_.retry()) writes_.retry_blocked();
    if (!records_.waiters().empty() && writes_.may_serve_log_waiters()) writes_.serve_log_waiters();
    if (shared_.rare_work) barriers_.advance();
    if (shared_.now >= records_.seal_after()) records_.seal_old();
    if (shared_.log.sealed() || shared_.segments_changed) advance_segments();
    if (flusher_.may_start()) flusher_.start();
    if (!queue_.waiters().empty() || flusher_.may_place()) writes_.admit();
    const bool freed = queue_.may_dispatch() && flusher_.dispatch();  // slots of the elevator
    again = freed && (!queue_.waiters().empty() || flusher_.loaded());
    if (shared_.rare_work) again |= do_rare_work();
    again |= order_.retry() || shared_.segments_changed;
  } while (again);
  if (records_.may_mark()) records_.advance_marks();
}

bool Engine::needs_rare_work() const {
  return barriers_.any() || sync_requests_.any() || records_.state() != LogRecords::State::kGood ||
         !losses_.saved() || syncs_.log.wanted() || syncs_.backing.wanted();
}

// What most requests have nothing to do with. Returns whether a sync is over.
bool Engine::do_rare_work() {
  const bool over = sync_requests_.any() && sync_requests_.advance();
  if (records_.state() != LogRecords::State::kGood) advance_abandon();
  if (!losses_.saved()) losses_.save();
  syncs_.start();
  shared_.rare_work = needs_rare_work();
  return over;
}

void Engine::mark_appended(Code code) {
  records_.mark_appended();
  if (code != Code::kOk) return log_failed(code);
  if (!shared_.page_cache()) syncs_.log.want(shared_.sync_due());
}

void Engine::settle(Ticket ticket, Nanos now) {
  set_now(now);
  records_.wait_for_mark(ticket);
  pump();
}

void Engine::accept_losses(Ticket ticket, Nanos now) {
  set_now(now);
  losses_.accept(ticket);
  pump();
}

// The list is durable without what the op has replaced; or cannot be.
void Engine::losses_told(OpIndex index, Code code) {
  if (!shared_.ops[index].is_write()) return barriers_.end(index, code);
  shared_.ops.finish(index, code);
}

void Engine::losses_written(Code code) {
  for (const OpIndex index : losses_.written(code)) losses_told(index, code);
}

void Engine::pause_flush(bool paused, Nanos now) {
  set_now(now);
  flusher_.pause(paused);
  pump();
}

size_t Engine::map_extents() const {
  size_t extents = 0;
  for (const FileState& file : shared_.files) extents += file.map.size();
  return extents;
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
  at(barriers_.next_event());
  at(records_.mark_due());
  return next == kForever ? next : clock_ + std::max<Nanos>(0, next - shared_.now);
}

bool Engine::idle() const {
  return order_.blocked() == 0 && records_.waiters().empty() && records_.abandon_waiters().empty() &&
         !barriers_.any() && !sync_requests_.any() && queue_.idle() && flusher_.idle() &&
         !syncs_.log.in_flight() && !syncs_.backing.in_flight() && losses_.idle() && !records_.marking() &&
         shared_.ops.count() == 0 && shared_.outbox.empty();
}

Stats Engine::stats() const {
  Stats stats = shared_.stats;
  stats.log_capacity_bytes = shared_.log.capacity_bytes();
  stats.log_used_bytes = shared_.log.used_bytes();
  stats.dirty_bytes = shared_.log.dirty_bytes();
  stats.elevator_depth = queue_.elevator().depth();
  stats.waiting = shared_.ops.count();
  stats.random_percentage = redirector_.traffic().percentage();
  stats.random_percentage_mean = redirector_.traffic().percentage_mean();
  stats.threshold = redirector_.traffic().threshold();
  stats.ssdup_plus_bytes = redirector_.traffic().ssd_bytes() + stats.forced_bytes;
  stats.flushing = flusher_.flushing();
  stats.log_failed = !records_.usable();
  stats.log_sync_ns = costs_.log_sync_ns();
  stats.backing_sync_ns = costs_.file_sync_ns();
  stats.direct_ns_per_byte = costs_.direct();
  stats.flush_ns_per_byte = costs_.flush();
  return stats;
}

std::string Engine::describe() const {
  std::string text = fmt::format(
      "blocked {}, wait for log {}, slot {}, abandonment {}; barriers {}, syncs {}, drains {}; slots waiting "
      "{}, in flight {}; {} now {}; log state {}",
      order_.blocked(), records_.waiters().size(), queue_.waiters().size(), records_.abandon_waiters().size(),
      barriers_.count(), sync_requests_.count(), sync_requests_.drains(), queue_.elevator().depth(),
      queue_.in_flight(), flusher_.describe(), shared_.now, static_cast<int>(records_.state()));
  for (uint32_t i = 0; i < shared_.log.count(); ++i) {
    const Segment& segment = shared_.log.at(i);
    text += fmt::format("; segment {}: state {}, used {}, dirty {}, appending {}, pins {}, ordinal {}", i,
                        static_cast<int>(segment.state), segment.used_bytes, segment.dirty_bytes,
                        segment.appending, segment.pins, segment.ordinal);
  }
  return text;
}

}  // namespace swale::tier
