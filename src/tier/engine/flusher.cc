#include "tier/engine/flusher.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace swale::tier {
namespace {

constexpr uint32_t kReadFailuresMax = 3;  // of the log, one after the other: it is lost
constexpr int kGapSteps = 16;             // extents that are looked at for one gap
constexpr uint32_t kGapPieces = 4;        // extents that are read ahead for one gap

}  // namespace

Flusher::Flusher(Shared* shared, const LogRecords* records, const Syncs* syncs, Losses* losses,
                 const Costs* costs, BackingQueue* queue, const Redirector* redirector)
    : shared_(*shared),
      records_(*records),
      syncs_(*syncs),
      losses_(*losses),
      costs_(*costs),
      queue_(*queue),
      elevator_(queue->elevator()),
      redirector_(*redirector),
      pieces_(shared->options.flush_pieces_max + kGapPieces),
      used_pieces_max_(shared->options.flush_pieces_max),
      depth_enough_(static_cast<uint64_t>(
          std::ceil(shared->options.swale.flush_queue_share * shared->options.queue_slots))),
      used_max_(static_cast<uint64_t>(shared->options.swale.flush_always_share *
                                      static_cast<double>(shared->log.capacity_bytes()))) {
  for (uint32_t i = static_cast<uint32_t>(pieces_.size()); i-- > 0;) free_pieces_.push_back(i);
}

bool Flusher::urgent() const {
  const bool wanted =
      records_.hurried() ||
      (flushing() && shared_.now - shared_.log.at(oldest_).first_write >= shared_.options.age_flush_ns);
  return wanted && !shared_.options.canaries.latch_gate;
}

bool Flusher::allowed() const {
  if (failing()) return false;
  if (urgent()) return true;
  if (held_back_) return false;
  if (shared_.swale()) {
    if (shared_.log.used_bytes() > used_max_) return true;
    // The system writes the bytes of a flush with the next sync of their file.
    if (costs_.somebody_waits() || shared_.now < costs_.quiet_from() || syncs_.backing.awaited())
      return false;
    return elevator_.depth() < depth_enough_ || costs_.overloaded();
  }
  if (shared_.options.policy == Policy::kSsdupPlus) return redirector_.traffic().to_ssd() || queue_.quiet();
  return true;
}

Nanos Flusher::next_event() const {
  if (failing()) return retry_;
  if (!paused()) return kForever;
  Nanos next = shared_.log.at(oldest_).first_write + shared_.options.age_flush_ns;
  // Who waits for a group's sync is answered by it, not by time.
  const Nanos quiet_from = costs_.quiet_from();
  if (shared_.swale() && !costs_.somebody_waits() && quiet_from > shared_.now)
    next = std::min(next, quiet_from);
  if (shared_.options.policy == Policy::kSsdupPlus && !held_back_) next = std::min(next, queue_.quiet_at());
  return next;
}

// The oldest sealed segments that have something to flush: one, or a batch that is swept together. A batch
// that has not begun is chosen again, and may be larger.
void Flusher::select_segment() {
  const uint32_t count = shared_.log.count();
  in_batch_.resize(count, 0);
  for (uint32_t i = 0; batch_begun_ && i < count; ++i)
    if (in_batch_[i] && shared_.log.at(i).dirty_bytes > 0 &&
        shared_.log.at(i).state == Segment::State::kSealed)
      return;
  std::fill(in_batch_.begin(), in_batch_.end(), 0);
  oldest_ = count;
  flushing_ = false;
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
    if (n == 0) oldest_ = oldest;
    flushing_ = true;
  }
  batch_begun_ = false;
  cursor_file_ = 0;
  cursor_offset_ = 0;
  pass_done_ = again_ = skipped_ = false;
}

void Flusher::restart_pass() {
  if (pass_done_) {
    pass_done_ = skipped_ = false;
    cursor_file_ = 0;
    cursor_offset_ = 0;
  } else {
    again_ = true;
  }
}

// The first extent at or after `at` that is dirty and of the batch. A scan: it is most of what a flush costs.
ExtentMap::Position Flusher::next_in_batch(const ExtentMap& map, ExtentMap::Position at) const {
  if (batch_segments_ > 1 || oldest_ == queue_segment_)
    return map.find_dirty(
        at, [this](uint64_t address) { return in_batch_[shared_.log.segment_of(address)] != 0; });
  return map.find_dirty(at, shared_.log.begin_of(oldest_), shared_.log.segment_bytes());
}

// The next extent of the segment in file order that is dirty and not under way.
bool Flusher::next_dirty(FileIndex* found_file, ExtentMap::Position* found) {
  for (;; ++cursor_file_, cursor_offset_ = 0) {
    if (cursor_file_ >= shared_.files.size()) {
      if (!std::exchange(again_, false)) break;
      cursor_file_ = 0;
      cursor_offset_ = 0;
    }
    FileState& file = shared_.files[cursor_file_];
    if (file.map.size() == 0) continue;
    if (file.no_flush) {
      skipped_ = true;
      continue;
    }
    for (auto at = next_in_batch(file.map, file.map.locate(cursor_offset_, cursor_at_)); file.map.valid(at);
         at = next_in_batch(file.map, file.map.next(at))) {
      const Extent extent = file.map.get(at);
      if (file.flush_overwritten &&
          is_flushed(cursor_file_, extent.offset, extent.end())) {  // of older bytes of the same range
        skipped_ = true;
        continue;
      }
      cursor_offset_ = extent.end();
      cursor_at_ = at;
      *found_file = cursor_file_;
      *found = at;
      return true;
    }
  }
  pass_done_ = true;
  return false;
}

void Flusher::start() {
  while (may_start() && allowed()) {
    FileIndex file;
    ExtentMap::Position at;
    if (!next_dirty(&file, &at)) return;
    batch_begun_ = true;
    start_piece(file, at, false);
  }
}

void Flusher::start_piece(FileIndex index, ExtentMap::Position at, bool passing) {
  FileState& file = shared_.files[index];
  const Extent extent = file.map.get(at);
  file.map.set_state(at, ExtentState::kFlushing);
  assert(extent.state == ExtentState::kDirty);
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
  used_pieces_ += !passing;
  shared_.outbox.emit(Action::Kind::kReadLog, index, 0, piece);
}

void Flusher::unpin_piece(const FlushPiece& piece) {
  Segment& segment = shared_.log.at(piece.segment);
  if (--segment.pins == 0 && segment.state == Segment::State::kLogSync) shared_.segments_changed = true;
}

bool Flusher::is_flushed(FileIndex file, uint64_t from, uint64_t to) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [=](const FlushPiece& piece) {
    return piece.state != FlushPiece::State::kFree && piece.file == file && piece.offset < to &&
           from < piece.offset + piece.length;
  });
}

void Flusher::free_piece(uint32_t index) {
  FlushPiece& piece = pieces_[index];
  FileState& file = shared_.files[piece.file];
  assert(piece.state != FlushPiece::State::kFree && file.flushing > 0);
  if (--file.flushing == 0) file.flush_overwritten = false;
  used_pieces_ -= !piece.passing;
  piece.state = FlushPiece::State::kFree;
  free_pieces_.push_back(index);
}

bool Flusher::read_failed() { return records_.usable() && ++read_failures_ >= kReadFailuresMax; }

void Flusher::piece_read(uint32_t index, Code code) {
  FlushPiece& piece = pieces_[index];
  assert(piece.state == FlushPiece::State::kReading);
  unpin_piece(piece);
  if (code != Code::kOk) {
    if (!records_.usable()) return lose(index);  // and is not expected to give them back later
    return piece_done(index, code);
  }
  read_failures_ = 0;
  piece.state = FlushPiece::State::kLoaded;
  if (!piece.passing || !place(index)) loaded_.push_back(index);
}

// Puts a piece into the elevator. False: there is no slot for it.
bool Flusher::place(uint32_t index) {
  FlushPiece& piece = pieces_[index];
  const Piece part{Piece::Source::kLog, piece.length, piece.offset, piece.address, 0, index};
  const uint64_t at = shared_.files.position(piece.file, piece.offset);
  if (!elevator_.merge(piece.file, at, part)) {
    if (elevator_.full() && !piece.passing) return false;
    elevator_.add(piece.file, at, part, piece.passing);
  }
  piece.state = FlushPiece::State::kQueued;
  return true;
}

bool Flusher::place_first() {
  if (!may_place() || !allowed()) return false;
  if (!place(loaded_.front())) {
    place_refused_ = elevator_.changes();
    return false;
  }
  loaded_.pop_front();
  return true;
}

bool Flusher::dispatch() {
  bool any = false;
  while (queue_.may_dispatch()) {
    const SlotIndex index = queue_.dispatch();
    any = true;
    if (shared_.swale()) fill_gap(elevator_.slot(index).file);
  }
  return any;
}

// Reads ahead what lies between the end of the slot that was just dispatched and the next one, if writing it
// in passing costs little: then it is in the elevator when the head comes by.
void Flusher::fill_gap(FileIndex index) {
  if (!records_.usable() || retry_ > shared_.now || elevator_.empty() || held_back_) return;
  if (static_cast<double>(shared_.log.dirty_bytes()) <
      shared_.options.swale.gap_fill_share * static_cast<double>(shared_.log.capacity_bytes()))
    return;
  uint64_t head = elevator_.head();
  const uint64_t limit = elevator_.slot(elevator_.next()).position;
  if (limit <= head) return;
  FileState& file = shared_.files[index];
  if (file.no_flush || head < file.base) return;
  uint64_t offset = head - file.base;
  const io::DiskModel& disk = shared_.options.backing;
  int steps = 0;
  while (free_pieces_.size() + used_pieces_ > shared_.options.flush_pieces_max && !free_pieces_.empty()) {
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

void Flusher::piece_done(uint32_t index, Code code) {
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
    failures_ = 0;
    if (piece.passing) shared_.stats.gap_filled_bytes += piece.length;
  } else {
    if (same) file.map.mark(piece.offset, end, piece.address, ExtentState::kDirty);
    ++shared_.stats.flush_errors;
    ++failures_;
    failure_ = code;
    retry_ = shared_.now + shared_.options.retry_ns;
    restart_pass();
  }
  if (segment != shared_.log.active() && shared_.log.at(segment).dirty_bytes == 0)
    shared_.segments_changed = true;
  if (skipped_) restart_pass();
  free_piece(index);
}

// The SSD does not give these bytes back.
void Flusher::lose(uint32_t index) {
  const FlushPiece piece = pieces_[index];
  const uint64_t end = piece.offset + piece.length;
  losses_.add_logged(piece.file, piece.offset, end, piece.address, LossReason::kUnreadable);
  free_piece(index);
  shared_.segments_changed = true;
  if (skipped_) restart_pass();
}

void Flusher::read_damaged(uint32_t index, const std::vector<FileRange>& ranges) {
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
}

void Flusher::made_void(FileState* file, const Extent& extent, uint32_t by_segment) {
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

void Flusher::carve(FileIndex index, uint64_t from, uint64_t to, uint32_t by_segment) {
  shared_.files[index].map.carve(
      from, to, [&](const Extent& extent) { made_void(&shared_.files[index], extent, by_segment); });
}

void Flusher::remove_clean(uint32_t segment) {
  // The recovered queue has all addresses from its begin to the end of logs; losses lie beyond.
  const uint64_t begin = shared_.log.begin_of(segment);
  const uint64_t end = segment == queue_segment_ ? Losses::kAddressBase : begin + shared_.log.segment_bytes();
  for (FileState& file : shared_.files)
    if (file.map.size() > 0) file.map.remove_addresses(begin, end);
}

// What of the file was flushed may not be on the backing device. What a sync has covered is: its segment may
// be half erased, or the queue that it stands for gone.
void Flusher::dirty_again(FileState* file) {
  for (auto at = file->map.locate(0); file->map.valid(at); at = file->map.next(at)) {
    const Extent extent = file->map.get(at);
    const uint32_t segment = shared_.log.segment_of(extent.address);
    if (extent.state != ExtentState::kClean || shared_.log.at(segment).durable) continue;
    file->map.set_state(at, ExtentState::kDirty);
    shared_.log.add_dirty(segment, extent.length);
    shared_.segments_changed = true;  // it may be the only one to be flushed
  }
  restart_pass();
}

std::string Flusher::describe() const {
  return fmt::format("flush of segment {}, pieces {}, loaded {}, pass done {}, skipped {}; retry {}",
                     static_cast<int32_t>(oldest_), used_pieces_, loaded_.size(), pass_done_, skipped_,
                     retry_);
}

}  // namespace swale::tier
