#include "tier/engine/engine.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {
namespace {

constexpr uint32_t kGapPieces = 4;  // extents that are read ahead for one gap

Traffic::Rule rule_of(Policy policy) {
  return policy == Policy::kSsdup ? Traffic::Rule::kWatermarks : Traffic::Rule::kAdaptive;
}

}  // namespace

Engine::Engine(const Options& options)
    : options_(options),
      elevator_(options.queue_slots, options.merge_bytes_max),
      log_(options),
      traffic_(rule_of(options.policy), options.detector),
      pieces_(options.flush_pieces_max + kGapPieces),
      flush_segment_(~uint32_t{0}),
      flush_depth_max_(options.swale.flush_queue_share * options.queue_slots),
      flush_used_max_(options.swale.flush_always_share * static_cast<double>(log_.capacity_bytes())),
      direct_times_(std::max<uint32_t>(1, options.quiet_requests_per_second), -kForever) {
  for (uint32_t i = static_cast<uint32_t>(pieces_.size()); i-- > 0;) free_pieces_.push_back(i);
}

FileIndex Engine::open_file(uint64_t id, uint64_t base, uint64_t size) {
  if (free_files_.empty()) {
    free_files_.push_back(static_cast<FileIndex>(files_.size()));
    files_.emplace_back();
  }
  const FileIndex index = free_files_.back();
  free_files_.pop_back();
  File& file = files_[index];
  file.id = id;
  file.base = base;
  file.size = size;
  return index;
}

bool Engine::close_file(FileIndex index) {
  File& file = files_[index];
  const bool busy = file.map.size() > 0 || file.held > 0 || file.flushing > 0 || file.blocked > 0 ||
                    file.barrier != kNoOp || !file.epochs.idle();
  const auto waits = [index](const PendingSync& pending) { return pending.file == index; };
  if (busy || std::any_of(pending_syncs_.begin(), pending_syncs_.end(), waits)) return false;
  file = File{};
  free_files_.push_back(index);
  return true;
}

uint64_t Engine::oldest_segment() const {
  uint64_t oldest = log_.ordinal() + 1;
  for (uint32_t i = 0; i < log_.count(); ++i)
    if (log_.at(i).live()) oldest = std::min(oldest, log_.at(i).ordinal);
  return oldest;
}

// A clock that is set back, or ahead and back again, must stop nothing that waits for a time: only steps ahead count.
void Engine::set_now(Nanos now) {
  const Nanos elapsed = now - clock_;
  if (elapsed == 0 || (elapsed < 0 && options_.canaries.latch_clock)) return;
  clock_ = now;
  if (elapsed < 0) return;
  if (paused()) stats_.paused_ns += elapsed;
  if (!log_waiters_.empty()) stats_.stalled_ns += elapsed;
  now_ += elapsed;
}

Engine::OpIndex Engine::new_op(Op::Kind kind, Ticket ticket, FileIndex file, Nanos now) {
  set_now(now);
  if (free_ops_.empty()) {
    free_ops_.push_back(static_cast<OpIndex>(ops_.size()));
    ops_.push_back(new_op_);
  }
  const OpIndex index = free_ops_.back();
  free_ops_.pop_back();
  Op& op = ops_[index];
  op = new_op_;
  op.kind = kind;
  op.ticket = ticket;
  op.file = file;
  op.file_epoch = files_[file].epochs.enter();
  op.epoch = epochs_.enter();
  return index;
}

// A request that does not begin at all.
void Engine::refuse(Ticket ticket, FileIndex file, Code code) {
  Action& action = emit(Action::Kind::kAcknowledge, file, ticket);
  action.code = code;
  action.released = true;
}

void Engine::write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length, Nanos now) {
  const uint64_t space =
      record_space(length, options_.log_alignment) + 2 * segment_tail_bytes(options_.log_alignment);
  if (length == 0 || length > kWriteBytesMax || offset > kFileBytesMax - length ||
      space > options_.segment_bytes || files_[file].unlinked)
    return refuse(ticket, file, length == 0 ? Code::kOk : Code::kInvalidArgument);
  const OpIndex index = new_op(Op::Kind::kWrite, ticket, file, now);
  Op& op = ops_[index];
  op.offset = offset;
  op.length = length;
  op.stream_to_ssd = traffic_.add(file, offset, length);
  watch_arrivals(length);
  ++stats_.writes;
  stats_.write_bytes += length;
  File& on = files_[file];
  expect_sync(&on, length);
  if (on.barrier == kNoOp && on.blocked == 0 && hold(index)) {
    begin_write(index);
  } else if (conflicts(op)) {
    if (!absorb(index)) {
      ++stats_.overlap_waits;
      block(index);
      divert_overlapping(ops_[index]);
    }
  } else {
    begin(index);
  }
  pump();
}

// The request is answered, if it was not before, and nothing of it is under way.
void Engine::finish(OpIndex index, Code code) {
  Op& op = ops_[index];
  files_[op.file].epochs.leave(op.file_epoch);
  epochs_.leave(op.epoch);
  if (op.pins > 0) {  // reads see only what is acknowledged
    assert(op.acknowledged);
    op.stage = Op::Stage::kPinned;
    return;
  }
  if (op.acknowledged) return release(index);
  Action& action = emit(Action::Kind::kAcknowledge, op.file, op.ticket);
  action.code = code;
  action.released = true;
  free_op(index);
}

// An op that was answered before.
void Engine::release(OpIndex index) {
  emit(Action::Kind::kRelease, ops_[index].file, ops_[index].ticket);
  free_op(index);
}

void Engine::free_op(OpIndex index) {
  ops_[index].stage = Op::Stage::kFree;
  free_ops_.push_back(index);
}

void Engine::completed(Action::Kind kind, uint32_t id, Code code, Nanos now) {
  set_now(now);
  switch (kind) {
    case Action::Kind::kAppend:
      if (id == kNoOp)
        mark_appended(code);
      else
        ops_[id].kind == Op::Kind::kWrite ? appended(id, code) : control_appended(id, code);
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
      if (!log_usable()) break;
      if (code != Code::kOk) {
        log_failed(code);
      } else {
        log_.at(id).state = Segment::State::kErasureSync;
        log_.at(id).sync_number = want_sync(&log_lane_, now_);
      }
      segments_changed_ = true;
      break;
    case Action::Kind::kTruncate:
    case Action::Kind::kUnlink:
      backing_changed(id, code);
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

void Engine::advance(Nanos now) {
  set_now(now);
  pump();
}

// Everything that can go on by now. Each part does nothing, cheaply, if there is nothing for it to do. What makes space for an
// earlier part begins again.
void Engine::pump() {
  assert(rare_work_ || !needs_rare_work());
  bool again;
  do {
    if (retry_blocked_) retry_blocked();
    if (!log_waiters_.empty() && may_serve_log_waiters()) serve_log_waiters();
    if (rare_work_)
      for (size_t i = 0; i < barriers_.size(); ++i) advance_barrier(barriers_[i]);
    if (now_ >= seal_after_) seal_old();
    if (log_.sealed() || segments_changed_) advance_segments();
    if (may_start_flush()) start_flush();
    if (!slot_waiters_.empty() || may_place()) admit();
    const bool freed = may_dispatch() && dispatch();  // slots of the elevator
    again = freed && (!slot_waiters_.empty() || !loaded_.empty());
    if (rare_work_) again |= do_rare_work();
    again |= retry_blocked_ || segments_changed_;
  } while (again);
  if (may_settle()) advance_settle();
}

bool Engine::needs_rare_work() const {
  return !barriers_.empty() || !pending_syncs_.empty() || log_state_ != LogState::kGood || !losses_saved() ||
         log_lane_.wanted || backing_lane_.wanted;
}

// What most requests have nothing to do with. Returns whether a sync is over.
bool Engine::do_rare_work() {
  const bool over = !pending_syncs_.empty() && advance_syncs();
  if (log_state_ != LogState::kGood) advance_abandon();
  if (!losses_saved()) save_losses();
  start_syncs();
  rare_work_ = needs_rare_work();
  return over;
}

void Engine::more_actions() {
  actions_.emplace_back();
  actions_made_ = actions_.size();
}

void Engine::pause_flush(bool paused, Nanos now) {
  set_now(now);
  flush_paused_ = paused;
  pump();
}

size_t Engine::map_bytes() const {
  size_t bytes = log_.index_bytes();
  for (const File& file : files_) bytes += file.map.memory_bytes();
  return bytes;
}

size_t Engine::map_extents() const {
  size_t extents = 0;
  for (const File& file : files_) extents += file.map.size();
  return extents;
}

bool Engine::idle() const {
  return blocked_.empty() && log_waiters_.empty() && slot_waiters_.empty() && abandon_waiters_.empty() &&
         barriers_.empty() && pending_syncs_.empty() && elevator_.empty() && slots_in_flight_ == 0 &&
         free_pieces_.size() == pieces_.size() && !log_lane_.in_flight && !backing_lane_.in_flight &&
         !loss_in_flight_ && !mark_in_flight_ && loss_waiters_.empty() && acceptances_.empty() &&
         free_ops_.size() == ops_.size() && actions_taken_ == actions_end_;
}

Stats Engine::stats() const {
  Stats stats = stats_;
  stats.log_capacity_bytes = log_.capacity_bytes();
  stats.log_used_bytes = log_.used_bytes();
  stats.dirty_bytes = log_.dirty_bytes();
  stats.elevator_depth = elevator_.depth();
  stats.waiting = ops_.size() - free_ops_.size();
  stats.random_percentage = traffic_.percentage();
  stats.random_percentage_mean = traffic_.percentage_mean();
  stats.threshold = traffic_.threshold();
  stats.flushing = flush_segment_ < log_.count();
  stats.log_failed = !log_usable();
  stats.log_sync_ns = log_sync_ns_;
  stats.backing_sync_ns = file_sync_ns_;
  stats.direct_ns_per_byte = direct_cost_;
  stats.flush_ns_per_byte = flush_cost_;
  return stats;
}

std::string Engine::describe() const {
  std::string text = fmt::format(
      "blocked {}, wait for log {}, slot {}, abandonment {}; barriers {}, syncs {}, drains {}; slots waiting "
      "{}, in "
      "flight {}; flush of segment {}, pieces {}, loaded {}, pass done {}, skipped {}; retry {} now {}; log "
      "state {}",
      blocked_.size(), log_waiters_.size(), slot_waiters_.size(), abandon_waiters_.size(), barriers_.size(),
      pending_syncs_.size(), drains_, elevator_.depth(), slots_in_flight_,
      static_cast<int32_t>(flush_segment_), flush_pieces_, loaded_.size(), flush_pass_done_, flush_skipped_,
      flush_retry_, now_, static_cast<int>(log_state_));
  for (uint32_t i = 0; i < log_.count(); ++i) {
    const Segment& segment = log_.at(i);
    text += fmt::format("; segment {}: state {}, used {}, dirty {}, appending {}, pins {}, ordinal {}", i,
                        static_cast<int>(segment.state), segment.used_bytes, segment.dirty_bytes,
                        segment.appending, segment.pins, segment.ordinal);
  }
  return text;
}

}  // namespace swale::tier
