// Engine: from the log to the backing device, in file order (ssdup-plus, section 2.4).
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {
namespace {

constexpr uint32_t kReadFailuresMax = 3;  // of the log, one after the other: it is lost
constexpr int kGapSteps = 16;             // extents that are looked at for one gap
}  // namespace

bool Engine::flush_is_urgent() const {
  if (shared_.options.canaries.latch_gate) return false;
  if (!records_.waiters().empty() || !barriers_.empty() || drains_ > 0 || !records_.usable()) return true;
  return flush_segment_ < shared_.log.count() &&
         shared_.now - shared_.log.at(flush_segment_).first_write >= shared_.options.age_flush_ns;
}

// The gate. It never latches: what waits for it to open wakes the engine by next_event, or by being a reason to open it.
bool Engine::flush_allowed() const {
  if (flush_retry_ > shared_.now) return false;
  if (flush_is_urgent()) return true;
  if (flush_paused_) return false;
  switch (shared_.options.policy) {
    case Policy::kSsdupPlus:
      return redirector_.traffic().to_ssd() || queue_.quiet();
    case Policy::kSwale:
      if (static_cast<double>(shared_.log.used_bytes()) > flush_used_max_) return true;
      // The system writes the bytes of a flush with the next sync of their file.
      if (syncs_.backing.awaited() || costs_.somebody_waits() || shared_.now < costs_.quiet_from())
        return false;
      return static_cast<double>(queue_.elevator().depth()) < flush_depth_max_ || costs_.overloaded();
    default:
      return true;
  }
}

// The oldest sealed segments that have something to flush: one, or a batch that is swept together. A batch is finished before
// the next one begins; one that has not begun is chosen again, and may be larger.
void Engine::select_segment() {
  const uint32_t count = shared_.log.count();
  in_batch_.resize(count, 0);
  for (uint32_t i = 0; batch_begun_ && i < count; ++i)
    if (in_batch_[i] && shared_.log.at(i).dirty_bytes > 0 &&
        shared_.log.at(i).state == Segment::State::kSealed)
      return;
  std::fill(in_batch_.begin(), in_batch_.end(), 0);
  flush_segment_ = count;
  batch_segments_ = 0;
  const uint32_t batch = shared_.swale() && costs_.overloaded() ? std::max(1u, count / 2) : 1;
  for (uint32_t n = 0; n < batch; ++n) {
    uint32_t oldest = count;
    for (uint32_t i = 0; i < count; ++i) {
      const Segment& segment = shared_.log.at(i);
      if (segment.state != Segment::State::kSealed || segment.dirty_bytes == 0 || in_batch_[i]) continue;
      if (oldest == count || segment.ordinal < shared_.log.at(oldest).ordinal) oldest = i;
    }
    if (oldest == count) break;
    in_batch_[oldest] = 1;
    ++batch_segments_;
    if (n == 0) flush_segment_ = oldest;
  }
  batch_begun_ = false;
  flush_file_ = 0;
  flush_offset_ = 0;
  flush_pass_done_ = flush_again_ = flush_skipped_ = false;
}

// Something has become dirty, or may be flushed by now, that the cursor may have passed.
void Engine::restart_pass() {
  if (flush_pass_done_) {
    flush_pass_done_ = flush_skipped_ = false;
    flush_file_ = 0;
    flush_offset_ = 0;
  } else {
    flush_again_ = true;
  }
}

// The first extent at or after `at` that is dirty and of the batch. A scan: it is most of what a flush costs.
ExtentMap::Position Engine::next_in_batch(const ExtentMap& map, ExtentMap::Position at) const {
  if (batch_segments_ > 1 || flush_segment_ == queue_segment_)
    return map.find_dirty(
        at, [this](uint64_t address) { return in_batch_[shared_.log.segment_of(address)] != 0; });
  return map.find_dirty(at, shared_.log.begin_of(flush_segment_), shared_.log.segment_bytes());
}

// The next extent of the segment in file order that is dirty and not under way.
bool Engine::next_dirty(FileIndex* found_file, ExtentMap::Position* found) {
  for (;; ++flush_file_, flush_offset_ = 0) {
    if (flush_file_ >= shared_.files.size()) {
      if (!std::exchange(flush_again_, false)) break;
      flush_file_ = 0;
      flush_offset_ = 0;
    }
    FileState& file = shared_.files[flush_file_];
    if (file.map.size() == 0) continue;
    if (file.no_flush) {
      flush_skipped_ = true;
      continue;
    }
    for (auto at = next_in_batch(file.map, file.map.locate(flush_offset_, flush_at_)); file.map.valid(at);
         at = next_in_batch(file.map, file.map.next(at))) {
      const Extent extent = file.map.get(at);
      if (file.flush_overwritten &&
          is_flushed(flush_file_, extent.offset, extent.end())) {  // of older bytes of the same range
        flush_skipped_ = true;
        continue;
      }
      flush_offset_ = extent.end();
      flush_at_ = at;
      *found_file = flush_file_;
      *found = at;
      return true;
    }
  }
  flush_pass_done_ = true;
  return false;
}

void Engine::start_flush() {
  while (may_start_flush() && flush_allowed()) {
    FileIndex file;
    ExtentMap::Position at;
    if (!next_dirty(&file, &at)) return;
    batch_begun_ = true;
    start_piece(file, at, false);
  }
}

void Engine::start_piece(FileIndex index, ExtentMap::Position at, bool passing) {
  FileState& file = shared_.files[index];
  const Extent extent = file.map.get(at);
  file.map.set_state(at, ExtentState::kFlushing);
  const uint32_t piece = free_pieces_.back();
  free_pieces_.pop_back();
  FlushPiece& taken = pieces_[piece];
  taken.state = FlushPiece::State::kReading;
  taken.passing = passing;
  taken.file = index;
  taken.length = extent.length;
  taken.offset = extent.offset;
  taken.address = extent.address;
  taken.segment = shared_.log.segment_of(extent.address);
  taken.generation = shared_.log.at(taken.segment).generation;
  taken.record = shared_.log.record_of(taken.segment, extent.address);
  taken.at = at;
  ++file.flushing;
  ++shared_.log.at(taken.segment).pins;
  flush_pieces_ += !passing;
  shared_.outbox.emit(Action::Kind::kReadLog, index, 0, piece);
}

void Engine::unpin_piece(const FlushPiece& piece) {
  Segment& segment = shared_.log.at(piece.segment);
  if (--segment.pins == 0 && segment.state == Segment::State::kLogSync) shared_.segments_changed = true;
}

// Whether bytes of the range are on their way from the log.
bool Engine::is_flushed(FileIndex file, uint64_t from, uint64_t to) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [=](const FlushPiece& piece) {
    return piece.state != FlushPiece::State::kFree && piece.file == file && piece.offset < to &&
           from < piece.offset + piece.length;
  });
}

void Engine::free_piece(uint32_t index) {
  FlushPiece& piece = pieces_[index];
  FileState& file = shared_.files[piece.file];
  if (--file.flushing == 0) file.flush_overwritten = false;
  flush_pieces_ -= !piece.passing;
  piece.state = FlushPiece::State::kFree;
  free_pieces_.push_back(index);
}

void Engine::piece_read(uint32_t index, Code code) {
  FlushPiece& piece = pieces_[index];
  unpin_piece(piece);
  if (code != Code::kOk) {
    if (records_.usable() && ++read_failures_ >= kReadFailuresMax) log_failed(code);
    if (!records_.usable()) return lose(index);
    return piece_done(index, code);
  }
  read_failures_ = 0;
  piece.state = FlushPiece::State::kLoaded;
  if (!piece.passing || !place(index)) loaded_.push_back(index);
}

// Puts a piece into the elevator. False: there is no slot for it.
bool Engine::place(uint32_t index) {
  FlushPiece& piece = pieces_[index];
  const Piece part{Piece::Source::kLog, piece.length, piece.offset, piece.address, 0, index};
  const uint64_t at = shared_.files.position(piece.file, piece.offset);
  if (!queue_.elevator().merge(piece.file, at, part)) {
    if (queue_.elevator().full() && !piece.passing) return false;
    queue_.elevator().add(piece.file, at, part, piece.passing);
  }
  piece.state = FlushPiece::State::kQueued;
  return true;
}

// Waiting writers and loaded pieces get slots in turn.
void Engine::admit() {
  for (bool progress = true; progress;) {
    progress = false;
    if (!queue_.waiters().empty()) {
      const OpIndex index = queue_.waiters().front();
      progress = queue_.place(index, true);
      if (progress) {
        queue_.pop_waiter();
        admitted(index);
      }
    }
    if (loaded_.empty() || queue_.elevator().changes() == place_refused_ || !flush_allowed()) continue;
    if (place(loaded_.front())) {
      loaded_.pop_front();
      progress = true;
    } else {
      place_refused_ = queue_.elevator().changes();
    }
  }
}

bool Engine::dispatch() {
  bool any = false;
  while (queue_.may_dispatch()) {
    const SlotIndex index = queue_.dispatch();
    any = true;
    if (shared_.swale()) fill_gap(queue_.elevator().slot(index).file);
  }
  return any;
}

// Reads ahead what lies between the end of the slot that was just dispatched and the next one, if writing it in passing
// costs little: then it is in the elevator when the head comes by.
void Engine::fill_gap(FileIndex index) {
  if (!records_.usable() || flush_retry_ > shared_.now || queue_.elevator().empty() || flush_paused_) return;
  if (static_cast<double>(shared_.log.dirty_bytes()) <
      shared_.options.swale.gap_fill_share * static_cast<double>(shared_.log.capacity_bytes()))
    return;
  uint64_t head = queue_.elevator().head();
  const uint64_t limit = queue_.elevator().slot(queue_.elevator().next()).position;
  if (limit <= head) return;
  FileState& file = shared_.files[index];
  if (file.no_flush || head < file.base) return;
  uint64_t offset = head - file.base;
  const io::DiskModel& disk = shared_.options.backing;
  int steps = 0;
  while (free_pieces_.size() + flush_pieces_ > shared_.options.flush_pieces_max && !free_pieces_.empty()) {
    auto at = file.map.locate(offset);
    for (; file.map.valid(at) && steps < kGapSteps; at = file.map.next(at), ++steps) {
      const Extent extent = file.map.get(at);
      if (extent.state == ExtentState::kDirty && extent.offset >= offset &&
          !(file.flush_overwritten && is_flushed(index, extent.offset, extent.end())))
        break;
    }
    if (!file.map.valid(at) || steps >= kGapSteps) return;
    const Extent extent = file.map.get(at);
    const uint64_t begin = shared_.files.position(index, extent.offset);
    const uint64_t end = shared_.files.position(index, extent.end());
    if (end > limit) return;
    const Nanos detour = disk.positioning(head, begin) + disk.positioning(end, limit);
    if (detour > disk.positioning(head, limit) + shared_.options.swale.gap_fill_slack_ns) return;
    start_piece(index, at, true);
    head = end;
    offset = extent.end();
  }
}

void Engine::slot_written(uint32_t index, Code code) {
  const Slot& slot = queue_.written(index, code);
  for (const Piece& piece : slot.pieces) {
    if (piece.source == Piece::Source::kRequest)
      direct_done(piece.op, code);
    else
      piece_done(piece.op, code);
  }
  queue_.release(index);
}

void Engine::piece_done(uint32_t index, Code code) {
  const FlushPiece& piece = pieces_[index];
  FileState& file = shared_.files[piece.file];
  const uint32_t segment = piece.segment;
  const uint64_t end = piece.offset + piece.length;
  // A newer record may stand at the same address once the segment is erased: that one is not flushed.
  const bool same = shared_.log.at(segment).generation == piece.generation;
  if (code == Code::kOk) {
    // What was overwritten meanwhile has another address, and stays dirty.
    if (same)
      shared_.log.remove_dirty(
          segment, file.map.mark(piece.offset, end, piece.address, ExtentState::kClean, piece.at));
    shared_.stats.flushed_bytes += piece.length;
    flush_failures_ = 0;
    if (piece.passing) shared_.stats.gap_filled_bytes += piece.length;
  } else {
    if (same) file.map.mark(piece.offset, end, piece.address, ExtentState::kDirty);
    ++shared_.stats.flush_errors;
    ++flush_failures_;
    flush_failure_ = code;
    flush_retry_ = shared_.now + shared_.options.retry_ns;
    restart_pass();
  }
  if (segment != shared_.log.active() && shared_.log.at(segment).dirty_bytes == 0)
    shared_.segments_changed = true;
  if (flush_skipped_) restart_pass();
  free_piece(index);
}

// The SSD does not give these bytes back, and is not expected to.
void Engine::lose(uint32_t index) {
  const FlushPiece piece = pieces_[index];
  const uint64_t end = piece.offset + piece.length;
  losses_.add_logged(piece.file, piece.offset, end, piece.address, LossReason::kUnreadable);
  free_piece(index);
  shared_.segments_changed = true;
  if (flush_skipped_) restart_pass();
}

void Engine::read_damaged(uint32_t index, const std::vector<FileRange>& ranges, Nanos now) {
  set_now(now);
  const FlushPiece piece = pieces_[index];
  FileState& file = shared_.files[piece.file];
  const uint64_t end = piece.offset + piece.length;
  unpin_piece(piece);
  for (const FileRange& range : ranges)
    losses_.add_logged(piece.file, range.begin, range.end, piece.address + (range.begin - piece.offset),
                       LossReason::kDamaged);
  // The rest of the piece is read and flushed again, as extents of their own.
  for (uint64_t at = piece.offset; at < end;) {
    const auto next =
        std::find_if(ranges.begin(), ranges.end(), [at](const FileRange& range) { return range.end > at; });
    const uint64_t whole_to = next == ranges.end() ? end : std::max(at, next->begin);
    if (whole_to > at) file.map.mark(at, whole_to, piece.address + (at - piece.offset), ExtentState::kDirty);
    at = next == ranges.end() ? end : std::max(whole_to, next->end);
  }
  free_piece(index);
  shared_.segments_changed = true;
  ++shared_.stats.flush_errors;
  restart_pass();
  pump();
}

// Bytes of the log that a newer record, or a truncate, makes void.
void Engine::made_void(FileState* file, const Extent& extent, uint32_t by_segment) {
  if (Losses::is_lost(extent)) {
    losses_.replaced(extent, by_segment);
    return;
  }
  if (extent.state == ExtentState::kFlushing) file->flush_overwritten = true;
  const uint32_t segment = shared_.log.segment_of(extent.address);
  if (extent.state != ExtentState::kClean) shared_.log.remove_dirty(segment, extent.length);
  if (segment != shared_.log.active() && shared_.log.at(segment).dirty_bytes == 0)
    shared_.segments_changed = true;
  if (by_segment < shared_.log.count() && !shared_.options.canaries.skip_shields)
    shared_.log.shield(by_segment, segment);
}

void Engine::carve_map(FileIndex index, uint64_t from, uint64_t to, uint32_t by_segment) {
  shared_.files[index].map.carve(
      from, to, [&](const Extent& extent) { made_void(&shared_.files[index], extent, by_segment); });
}

}  // namespace swale::tier
