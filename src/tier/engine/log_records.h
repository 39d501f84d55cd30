// LogRecords: what an engine appends to its log: the numbers of records, what their headers say of those
// before them, who waits for space, and the end of a log that fails.
//
//   good ─► read-only ─► abandoning ─► gone
//               ▲             │ refused: tried again
//               └─────────────┘
//
// A record's header says how far everything before it was settled (settled.h). The last records before a
// pause have nobody to speak for them: after a while a mark, which is a record without payload, does.
//
// Invariants: (1) sequences rise; (2) each record that was begun is settled once: acknowledged, refused, or
// given up with the log; (3) a log that has failed is never appended to again; (4) one mark is under way at
// most, and none begins beside another append.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tier/engine/settled.h"
#include "tier/engine/shared.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"

namespace swale::tier {

class LogRecords {
 public:
  enum class State : uint8_t { kGood, kReadOnly, kAbandoning, kGone };

  explicit LogRecords(Shared* shared) : shared_(*shared) {}

  State state() const { return state_; }
  bool usable() const { return state_ == State::kGood; }
  void fail() {
    assert(state_ == State::kGood);
    state_ = State::kReadOnly;
    hurry();  // for good: what it has is worth nothing before it is flushed
  }
  void begin_abandonment() {
    assert(state_ == State::kReadOnly && shared_.log.dirty_bytes() == 0);
    state_ = State::kAbandoning;
  }
  void end_abandonment(bool done) {
    assert(state_ == State::kAbandoning);
    state_ = done ? State::kGone : State::kReadOnly;
  }

  // Space for the record of a write, in the segment that is active then.
  bool take_space(Op* write);
  uint64_t control_bytes() const { return record_space(0, shared_.options.log_alignment); }
  // What a record says of itself, but for its type, offset and length. Its append begins.
  void fill_header(RecordHeader* record, FileIndex file, uint64_t address, uint32_t segment);
  // For what is acknowledged from the queue, and stands in no log: settled at once.
  uint64_t draw_sequence() { return ++sequence_; }
  uint64_t sequence() const { return sequence_; }
  uint64_t settled_through() const { return settled_.through(sequence_); }
  void settle(uint64_t sequence) { settled_.end(sequence); }
  // Its record stands in the log: a mark will have to say that it is settled.
  void logged(uint64_t sequence) {
    assert(sequence <= sequence_);
    last_logged_ = std::max(last_logged_, sequence);
  }
  // Recovery: the sequence was given out by a process before; then: everything before is settled, and said to
  // be.
  void restore(uint64_t sequence) { sequence_ = std::max(sequence_, sequence); }
  void restored() { marked_ = last_logged_ = sequence_; }

  // Who waits for space, in order: writes, and truncates that need their two records.
  const std::deque<OpIndex>& waiters() const { return waiters_; }
  void wait_for_space(OpIndex op) {
    assert(usable());
    waiters_.push_back(op);
    hurry();
  }
  void pop_waiter() {
    waiters_.pop_front();
    end_hurry();
  }
  std::deque<OpIndex> take_waiters() {
    assert(hurried_ >= waiters_.size());
    hurried_ -= static_cast<uint32_t>(waiters_.size());
    return std::exchange(waiters_, {});
  }
  // Something waits until what the log has is flushed: who waits for space, a truncate, an unlink, a drain;
  // or the log has failed.
  void hurry() { ++hurried_; }
  void end_hurry() {
    assert(hurried_ > 0);
    --hurried_;
  }
  bool hurried() const { return hurried_ > 0; }
  // Who waits until a log that has failed counts no more.
  const std::vector<OpIndex>& abandon_waiters() const { return abandon_waiters_; }
  void wait_for_abandonment(OpIndex op) {
    assert(state_ != State::kGood && state_ != State::kGone);
    abandon_waiters_.push_back(op);
  }
  std::vector<OpIndex> take_abandon_waiters() { return std::exchange(abandon_waiters_, {}); }

  // Answered by a mark, or when none is needed.
  void wait_for_mark(Ticket ticket) { mark_waiters_.push_back(ticket); }
  // No mark while appends are under way, or wait.
  bool may_mark() const {
    if (mark_due_ != kForever || !mark_waiters_.empty()) return true;
    return last_logged_ > marked_ && settled_.all() && waiters_.empty();
  }
  void advance_marks();
  void mark_appended();
  bool marking() const { return mark_in_flight_; }
  Nanos mark_due() const { return mark_due_; }

  // Seals what is idle or old.
  void seal_old();
  Nanos seal_after() const { return seal_after_; }
  // What a clean end may promise of the log's segments. None: the log has failed, or a record is being
  // written.
  std::optional<std::vector<SegmentSeal>> seals() const;

 private:
  void append_mark();

  Shared& shared_;
  State state_ = State::kGood;
  uint64_t sequence_ = 0;  // the last that was given out
  Settled settled_;
  std::deque<OpIndex> waiters_;
  uint32_t hurried_ = 0;
  std::vector<OpIndex> abandon_waiters_;

  uint64_t last_logged_ = 0;  // the newest record of the log that is settled or waits for a sync
  uint64_t marked_ = 0;       // what the newest header says is settled
  bool mark_in_flight_ = false;
  Nanos mark_due_ = kForever;
  uint64_t mark_address_ = 0;
  uint64_t mark_sequence_ = 0;
  std::vector<Ticket> mark_waiters_;
  Nanos seal_after_ = 0;  // nothing is idle or old before
};

// Here, because each append asks for it.
inline void LogRecords::fill_header(RecordHeader* record, FileIndex file, uint64_t address,
                                    uint32_t segment) {
  assert(usable() && shared_.log.at(segment).appending > 0);
  const uint64_t through = settled_.through(sequence_);
  record->segment = segment;
  record->generation = shared_.log.at(segment).generation;
  record->unsettled =
      static_cast<uint32_t>(std::min<uint64_t>(sequence_ - through, RecordHeader::kSettledUnknown));
  record->sequence = ++sequence_;
  record->file = file == kNoFile ? 0 : shared_.files[file].id;
  record->address = address;
  marked_ = through;
  settled_.begin(sequence_);
  mark_due_ = kForever;
}

}  // namespace swale::tier
