#include "tier/engine.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {
namespace {

constexpr int64_t kDayNs = 86'400'000'000'000;
constexpr uint32_t kGapPieces = 4;  // extents that are read ahead for one gap
constexpr uint32_t kMapCheckEvery = 1024;

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
  const bool busy = file.map.size() > 0 || file.held.size() > 0 || file.flushing.size() > 0 ||
                    file.blocked > 0 || file.barrier != kNoOp || !file.epochs.idle();
  const auto waits = [index](const PendingSync& pending) { return pending.file == index; };
  if (busy || std::any_of(pending_syncs_.begin(), pending_syncs_.end(), waits)) return false;
  file = File{};
  free_files_.push_back(index);
  return true;
}

void Engine::set_now(Nanos now) {
  if (now <= now_) return;
  if (paused_) stats_.paused_ns += now - now_;
  if (stalled_) stats_.stalled_ns += now - now_;
  now_ = now;
}

void Engine::emit(const Action& action) { actions_.push_back(action); }

bool Engine::take_action(Action* action) {
  if (actions_taken_ == actions_.size()) {
    actions_.clear();
    actions_taken_ = 0;
    return false;
  }
  *action = actions_[actions_taken_++];
  return true;
}

Engine::OpIndex Engine::new_op(Op::Kind kind, Ticket ticket, FileIndex file, Nanos now) {
  set_now(now);
  if (free_ops_.empty()) {
    free_ops_.push_back(static_cast<OpIndex>(ops_.size()));
    ops_.emplace_back();
  }
  const OpIndex index = free_ops_.back();
  free_ops_.pop_back();
  Op& op = ops_[index];
  op = Op{};
  op.kind = kind;
  op.ticket = ticket;
  op.file = file;
  op.file_epoch = files_[file].epochs.enter();
  op.epoch = epochs_.enter();
  return index;
}

// A request that does not begin at all.
void Engine::refuse(Ticket ticket, FileIndex file, Code code) {
  emit({.kind = Action::Kind::kAcknowledge, .code = code, .file = file, .ticket = ticket});
  emit({.kind = Action::Kind::kRelease, .file = file, .ticket = ticket});
}

void Engine::write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length, Nanos now) {
  const uint64_t space = round_up(kRecordHeaderBytes + length, options_.log_alignment) +
                         round_up(kSegmentHeaderBytes, options_.log_alignment);
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
  if (on.barrier == kNoOp && on.blocked == 0 &&
      on.held.insert_if_free({offset, index, length, ExtentState::kDirty})) {
    begin_write(index);
  } else if (conflicts(op)) {
    ++stats_.overlap_waits;
    block(index);
  } else {
    begin(index);
  }
  pump();
}

// Whether an op that came before stands in the way of this one. Of those that are blocked, only the ones before `op` in
// blocked_ are looked at (all of them, for one that is not there yet).
bool Engine::conflicts(const Op& op) const {
  const File& file = files_[op.file];
  if (file.barrier != kNoOp) return true;
  if (op.kind != Op::Kind::kWrite) {
    if (file.held.size() > 0) return true;
  } else if (!options_.canaries.overlap_in_queue && file.held.overlaps(op.offset, op.offset + op.length)) {
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
      ++i;
      continue;
    }
    blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
    --files_[ops_[index].file].blocked;
    if (files_[ops_[index].file].unlinked) {
      acknowledge(&ops_[index], Code::kNotFound);
      finish(index);
      continue;
    }
    begin(index);
  }
}

void Engine::begin(OpIndex index) {
  Op& op = ops_[index];
  if (op.kind != Op::Kind::kWrite) return begin_barrier(index);
  File& file = files_[op.file];
  if (options_.canaries.overlap_in_queue && file.held.overlaps(op.offset, op.offset + op.length)) {
    // The canary: two of one range at a time. The map of held ranges can only name one.
    to_backing(index);
    return;
  }
  file.held.insert({op.offset, index, op.length, ExtentState::kDirty});
  begin_write(index);
}

// The range is held.
void Engine::begin_write(OpIndex index) {
  const Op& op = ops_[index];
  File& file = files_[op.file];
  file.size = std::max(file.size, op.offset + op.length);
  route(index);
}

void Engine::route(OpIndex index) {
  Op& op = ops_[index];
  const File& file = files_[op.file];
  const bool overlap =
      !options_.canaries.overwrite_directly && file.map.overlaps(op.offset, op.offset + op.length);
  if (!log_usable()) {
    if (overlap) {
      op.stage = Op::Stage::kAbandonWait;
      abandon_waiters_.push_back(index);
      return;
    }
    return to_backing(index);
  }
  if (!overlap && !wants_log(op)) return to_backing(index);
  if (log_waiters_.empty() && take_log_space(&op)) return append(index);
  if (overlap || waits_when_full()) {
    ++stats_.log_waits;
    op.stage = Op::Stage::kLogWait;
    log_waiters_.push_back(index);
    return;
  }
  ++stats_.overflows;
  to_backing(index);
}

// The redirector: whether the policy sends this write to the SSD.
bool Engine::wants_log(const Op& op) {
  if (options_.policy == Policy::kBacking) return false;
  if (map_full_ || ++map_check_ >= kMapCheckEvery) {
    map_check_ = 0;
    map_full_ = map_bytes() > options_.map_bytes_max;
    if (map_full_) return false;
  }
  if (options_.ssd_bytes_per_day > 0) {
    if (wear_day_ != now_ / kDayNs) wear_day_ = now_ / kDayNs, wear_bytes_ = 0;
    if (wear_bytes_ + op.length > options_.ssd_bytes_per_day) return false;
  }
  switch (options_.policy) {
    case Policy::kSsdBlocking:
    case Policy::kSsdOverflowing:
      return true;
    case Policy::kSsdup:
    case Policy::kSsdupPlus:
      return op.stream_to_ssd;
    default:
      break;
  }
  // Back-pressure: only what would wait for the backing device.
  if (elevator_.would_merge(op.file, position(op.file, op.offset), op.offset, op.length)) return false;
  if (elevator_.depth() + slot_waiters_.size() < elevator_.slots_max()) return false;
  return static_cast<double>(stats_.ssd_bytes + op.length) <= byte_budget();
}

// The shadow: what SSDUP+ would have sent to the SSD by now, less what ordered traffic does not need.
double Engine::byte_budget() const {
  const SwaleOptions& own = options_.swale;
  if (own.byte_budget_random <= 0) return 1e300;
  const double random = traffic_.percentage_mean();
  return (own.byte_budget_ordered + (own.byte_budget_random - own.byte_budget_ordered) * random) *
         static_cast<double>(traffic_.ssd_bytes());
}

bool Engine::waits_when_full() const {
  if (options_.policy == Policy::kSsdOverflowing) return false;
  return flush_retry_ <= now_;  // while the backing device fails, nothing would make space
}

// How fast writes come when nothing holds them up: the quickest of recent windows.
void Engine::watch_arrivals(uint32_t length) {
  constexpr uint32_t kWindow = 64;
  constexpr double kForget = 1.02;  // a window
  window_bytes_ += length;
  if (++window_writes_ < kWindow) return;
  const double cost = static_cast<double>(now_ - window_start_) / static_cast<double>(window_bytes_);
  arrival_cost_ = arrival_cost_ == 0 ? cost : std::min(arrival_cost_ * kForget, cost);
  window_start_ = now_;
  window_bytes_ = window_writes_ = 0;
}

bool Engine::take_log_space(Op* op) {
  const uint64_t bytes = round_up(kRecordHeaderBytes + op->length, options_.log_alignment);
  const auto address = log_.reserve(bytes, now_);
  if (!address) return false;
  op->address = *address;
  log_.seal_if_full(bytes);
  return true;
}

void Engine::serve_log_waiters() {
  while (!log_waiters_.empty()) {
    const OpIndex index = log_waiters_.front();
    Op& op = ops_[index];
    if (op.kind != Op::Kind::kWrite) {
      if (!take_barrier_space(index)) return;
      log_waiters_.pop_front();
      continue;
    }
    if (take_log_space(&op)) {
      log_waiters_.pop_front();
      append(index);
    } else if (flush_retry_ > now_ &&
               !files_[op.file].map.overlaps(
                   op.offset, op.offset + op.length)) {  // the backing device fails: let the writer know
      log_waiters_.pop_front();
      to_backing(index);
    } else {
      return;
    }
  }
}

void Engine::append(OpIndex index) {
  Op& op = ops_[index];
  op.stage = Op::Stage::kAppending;
  op.sequence = ++sequence_;
  stats_.ssd_bytes += op.length;
  wear_bytes_ += op.length;
  const uint32_t segment = log_.segment_of(op.address);
  Action action{.kind = Action::Kind::kAppend, .id = index, .file = op.file, .ticket = op.ticket};
  action.record = {RecordType::kWrite,
                   segment,
                   log_.at(segment).generation,
                   0,
                   op.sequence,
                   files_[op.file].id,
                   op.offset,
                   op.length,
                   op.address};
  emit(action);
}

void Engine::appended(OpIndex index, Code code) {
  Op& op = ops_[index];
  const uint32_t segment = log_.segment_of(op.address);
  --log_.at(segment).appending;
  if (segment != log_.active()) segments_changed_ = true;
  if (segment < in_batch_.size() && in_batch_[segment]) restart_pass();  // it may lie behind the cursor
  if (code != Code::kOk) {
    // The record may stand in the log all the same: the write waits until the log counts no more.
    ++stats_.append_errors;
    log_failed(code);
    op.stage = Op::Stage::kAbandonWait;
    abandon_waiters_.push_back(index);
    return;
  }
  File& file = files_[op.file];
  file.map.replace({op.offset, op.address + kRecordHeaderBytes, op.length, ExtentState::kDirty},
                   [&](const Extent& extent) { made_void(&file, extent, segment); });
  log_.add_dirty(segment, op.length);
  release_range(op);
  if (page_cache()) {
    acknowledge(&op, Code::kOk);
    return finish(index);
  }
  op.stage = Op::Stage::kSyncWait;
  log_sync_waiters_.emplace_back(want_sync(&log_lane_, sync_due()), index);
}

void Engine::to_backing(OpIndex index) {
  Op& op = ops_[index];
  [[maybe_unused]] const File& file = files_[op.file];
  // A flush under way would carry older bytes; but what it flushes is in the map, or newer bytes of the log are (rule 2).
  assert(options_.canaries.overwrite_directly || options_.canaries.overlap_in_queue ||
         !file.flushing.overlaps(op.offset, op.offset + op.length));
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
  direct_times_[direct_next_] = now_;
  direct_next_ = direct_next_ + 1 == direct_times_.size() ? 0 : direct_next_ + 1;
  if (!page_cache() || op.acknowledged) return;
  op.sequence = ++sequence_;
  op.acknowledged = true;
  Action action{.kind = Action::Kind::kAcknowledge, .queued = true, .file = op.file, .ticket = op.ticket};
  action.record = {RecordType::kQueued, 0, 0, 0, op.sequence, files_[op.file].id, op.offset, op.length, 0};
  emit(action);
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
      stats_.lost_bytes += op.length;
    }
    release_range(op);
    acknowledge(&op, code);
    return finish(index);
  }
  release_range(op);
  if (page_cache()) {
    acknowledge(&op, Code::kOk);
    return finish(index);
  }
  op.stage = Op::Stage::kSyncWait;
  backing_sync_waiters_.emplace_back(want_sync(&backing_lane_, sync_due()), index);
}

void Engine::release_range(const Op& op) {
  files_[op.file].held.carve(op.offset, op.offset + op.length, [](const Extent&) {});
  if (!blocked_.empty()) retry_blocked_ = true;
}

void Engine::acknowledge(Op* op, Code code) {
  if (op->acknowledged) return;
  op->acknowledged = true;
  emit({.kind = Action::Kind::kAcknowledge, .code = code, .file = op->file, .ticket = op->ticket});
}

void Engine::finish(OpIndex index) {
  Op& op = ops_[index];
  files_[op.file].epochs.leave(op.file_epoch);
  epochs_.leave(op.epoch);
  if (op.pins > 0) {
    op.stage = Op::Stage::kPinned;
    return;
  }
  free_op(index);
}

void Engine::free_op(OpIndex index) {
  Op& op = ops_[index];
  emit({.kind = Action::Kind::kRelease, .file = op.file, .ticket = op.ticket});
  op.stage = Op::Stage::kFree;
  free_ops_.push_back(index);
}

void Engine::plan_read(FileIndex index, uint64_t offset, uint64_t length, ReadPlan* plan) {
  const File& file = files_[index];
  plan->file = index;
  plan->pieces.clear();
  const auto add_stored = [&](uint64_t from, uint64_t to) {
    uint64_t at = from;
    const auto backing = [&](uint64_t end) {
      if (at < end) plan->pieces.push_back({ReadPiece::From::kBacking, at, end - at, 0, 0, 0, 0});
      at = end;
    };
    file.map.visit(from, to, [&](const Extent& extent) {
      const uint32_t segment = log_.segment_of(extent.address);
      // What is being erased, and what a failing SSD has, is read where it is whole.
      const bool elsewhere = extent.state == ExtentState::kClean &&
                             (!log_usable() || log_.at(segment).state >= Segment::State::kErasing);
      if (elsewhere) return;
      backing(extent.offset);
      ++log_.at(segment).pins;
      plan->pieces.push_back(
          {ReadPiece::From::kLog, extent.offset, extent.length, extent.address, 0, 0, segment});
      at = extent.end();
    });
    backing(to);
  };
  uint64_t at = offset;
  const uint64_t asked = offset + length;
  const uint64_t end = std::clamp(file.size, offset, asked);
  for (auto held = file.held.locate(offset); file.held.valid(held); held = file.held.next(held)) {
    const Extent range = file.held.get(held);
    if (range.offset >= end) break;
    const auto op_index = static_cast<OpIndex>(range.address);
    Op& op = ops_[op_index];
    if (!op.acknowledged) continue;  // its bytes may be read as they were
    const uint64_t from = std::max(range.offset, offset);
    const uint64_t to = std::min(range.end(), end);
    if (at < from) add_stored(at, from);
    ++op.pins;
    plan->pieces.push_back(
        {ReadPiece::From::kQueue, from, to - from, 0, op.ticket, from - op.offset, op_index});
    at = to;
  }
  if (at < end) add_stored(at, end);
  if (end < asked) plan->pieces.push_back({ReadPiece::From::kZeros, end, asked - end, 0, 0, 0, 0});
}

void Engine::read_done(const ReadPlan& plan, Nanos now) {
  set_now(now);
  for (const ReadPiece& piece : plan.pieces) {
    if (piece.from == ReadPiece::From::kLog) {
      --log_.at(piece.pinned).pins;
      segments_changed_ = true;
    } else if (piece.from == ReadPiece::From::kQueue) {
      Op& op = ops_[piece.pinned];
      if (--op.pins == 0 && op.stage == Op::Stage::kPinned) free_op(piece.pinned);
    }
  }
  pump();
}

void Engine::completed(Action::Kind kind, uint32_t id, Code code, Nanos now) {
  set_now(now);
  switch (kind) {
    case Action::Kind::kAppend:
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
  bool again;
  do {
    if (retry_blocked_) retry_blocked();
    if (!log_waiters_.empty()) serve_log_waiters();
    if (!barriers_.empty())
      for (size_t i = 0; i < barriers_.size(); ++i) advance_barrier(barriers_[i]);
    advance_segments();
    start_flush();
    if (!slot_waiters_.empty() || !loaded_.empty()) admit();
    const bool freed = dispatch();  // slots of the elevator
    again = freed && (!slot_waiters_.empty() || !loaded_.empty());
    if (!pending_syncs_.empty()) again |= advance_syncs();
    if (log_state_ != LogState::kGood) advance_abandon();
    start_syncs();
    again |= retry_blocked_ || segments_changed_;
  } while (again);
  stalled_ = !log_waiters_.empty();
  paused_ = flush_segment_ < log_.count() && !flush_allowed();
}

void Engine::pause_flush(bool paused, Nanos now) {
  set_now(now);
  flush_paused_ = paused;
  pump();
}

size_t Engine::map_bytes() const {
  size_t bytes = 0;
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
         free_ops_.size() == ops_.size() && actions_taken_ == actions_.size();
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

std::vector<std::pair<FileIndex, uint64_t>> Engine::dirty_files() const {
  std::vector<std::pair<FileIndex, uint64_t>> dirty;
  for (FileIndex i = 0; i < files_.size(); ++i) {
    uint64_t bytes = 0;
    files_[i].map.visit(0, kFileBytesMax, [&bytes](const Extent& extent) {
      if (extent.state != ExtentState::kClean) bytes += extent.length;
    });
    if (bytes > 0) dirty.emplace_back(i, bytes);
  }
  return dirty;
}

}  // namespace swale::tier
