// Flusher: from the log to the backing device, in file order (ssdup-plus, section 2.4).
//
//   oldest sealed segments ─► batch ─► cursor over the files ─► piece: read from the log ─► loaded ─► slot of
//   the elevator
//
// It chooses what is flushed and when (the gate), and is the only part that changes what the maps say of
// bytes in the log, but for the append that brings them there.
//
// Invariants: (1) a piece is one extent of state kFlushing, until that is overwritten; a segment is not
// erased while a piece of it is being read; (2) marks go by address and generation: what was overwritten
// meanwhile stays dirty; (3) the gate never latches: what waits for it to open is a reason to open it, or
// wakes the engine by next_event(); (4) a batch is finished before the next one begins.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tier/engine/backing_queue.h"
#include "tier/engine/costs.h"
#include "tier/engine/log_records.h"
#include "tier/engine/losses.h"
#include "tier/engine/redirector.h"
#include "tier/engine/shared.h"
#include "tier/engine/syncs.h"

namespace swale::tier {

class Flusher {
 public:
  Flusher(Shared* shared, const LogRecords* records, const Syncs* syncs, Losses* losses, const Costs* costs,
          BackingQueue* queue, const Redirector* redirector);

  // Whether something may be flushed now. Paused: there is something to flush, and may not be.
  bool allowed() const;
  bool paused() const { return flushing() && !allowed(); }
  // An operator's wish.
  void pause(bool wanted) { held_back_ = wanted; }
  Nanos next_event() const;

  // Chooses what is flushed next. Call when segments have changed.
  void select_segment();
  // Nothing is flushed any more: the log is gone.
  void stop() {
    oldest_ = shared_.log.count();
    flushing_ = false;
  }
  bool flushing() const { return flushing_; }
  bool in_batch(uint32_t segment) const { return segment < in_batch_.size() && in_batch_[segment] != 0; }
  // Something has become dirty, or may be flushed by now, that the cursor may have passed.
  void restart_pass();
  bool may_start() const {
    return flushing_ && !pass_done_ && used_pieces_ < used_pieces_max_ && !free_pieces_.empty();
  }
  void start();

  // The log was read, or not.
  void piece_read(uint32_t piece, Code code);
  // The log could not be read. Returns whether it is lost: the engine fails it before piece_read.
  bool read_failed();
  // These ranges of the piece fail their checksums.
  void read_damaged(uint32_t piece, const std::vector<FileRange>& ranges);
  // Whether a loaded piece may get a slot, and whether the first one did.
  bool may_place() const { return !loaded_.empty() && elevator_.changes() != place_refused_; }
  bool place_first();
  // Has the driver write slots; fills gaps before the next ones. Returns whether there were any.
  bool dispatch();
  // Its slot was written, or not.
  void piece_done(uint32_t piece, Code code);

  // The backing device fails: nothing is flushed for a while.
  void backing_failed() {
    ++shared_.stats.flush_errors;
    retry_ = shared_.now + shared_.options.retry_ns;
  }
  bool failing() const { return retry_ > shared_.now; }
  uint32_t failures() const { return failures_; }  // one after the other
  Code failure() const { return failure_; }

  // What the maps say. Bytes of the log that a newer record, or a truncate, makes void; by_segment: that of
  // the record.
  void made_void(FileState* file, const Extent& extent, uint32_t by_segment);
  void carve(FileIndex file, uint64_t from, uint64_t to, uint32_t by_segment);
  // A segment is erased.
  void remove_clean(uint32_t segment);
  // What of the file was flushed may not be on the backing device.
  void dirty_again(FileState* file);
  // Whether bytes of the range are on their way from the log.
  bool is_flushed(FileIndex file, uint64_t from, uint64_t to) const;
  // Recovery: the segment that stands for the queue of a killed process.
  void set_queue_segment(uint32_t segment) { queue_segment_ = segment; }

  const FlushPiece& piece(uint32_t buffer) const { return pieces_[buffer]; }
  uint32_t buffers() const { return static_cast<uint32_t>(pieces_.size()); }
  bool loaded() const { return !loaded_.empty(); }
  bool idle() const { return free_pieces_.size() == pieces_.size(); }
  std::string describe() const;

 private:
  bool urgent() const;
  bool next_dirty(FileIndex* file, ExtentMap::Position* at);
  ExtentMap::Position next_in_batch(const ExtentMap& map, ExtentMap::Position at) const;
  void start_piece(FileIndex file, ExtentMap::Position at, bool passing);
  void unpin_piece(const FlushPiece& piece);
  void free_piece(uint32_t piece);
  bool place(uint32_t piece);
  void lose(uint32_t piece);
  void fill_gap(FileIndex file);

  Shared& shared_;
  const LogRecords& records_;
  const Syncs& syncs_;
  Losses& losses_;
  const Costs& costs_;
  BackingQueue& queue_;
  Elevator& elevator_;  // of the queue
  const Redirector& redirector_;

  std::vector<FlushPiece> pieces_;
  std::vector<uint32_t> free_pieces_;
  std::deque<uint32_t> loaded_;  // read, wait for a slot
  uint32_t used_pieces_ = 0;     // without those in passing
  const uint32_t used_pieces_max_;
  uint64_t place_refused_ = ~uint64_t{0};  // Elevator::changes() when the first of loaded_ found no place

  bool flushing_ = false;           // there is a batch
  uint32_t oldest_ = ~uint32_t{0};  // its oldest segment
  std::vector<uint8_t> in_batch_;   // by segment
  uint32_t batch_segments_ = 0;
  bool batch_begun_ = false;  // until then it may still grow
  uint32_t queue_segment_ = ~uint32_t{0};
  FileIndex cursor_file_ = 0;
  uint64_t cursor_offset_ = 0;
  ExtentMap::Position cursor_at_;  // the extent that was found last, as a hint
  bool pass_done_ = false;         // the end of the file order is reached
  bool again_ = false;             // something may lie behind the cursor
  bool skipped_ = false;           // the pass has skipped something that was under way

  const uint64_t depth_enough_;  // slots of the elevator: it needs no more
  const uint64_t used_max_;      // bytes of the log
  bool held_back_ = false;       // by an operator
  Nanos retry_ = 0;              // no flush before
  uint32_t failures_ = 0;
  Code failure_ = Code::kIoError;
  uint32_t read_failures_ = 0;  // of the log, one after the other
};

}  // namespace swale::tier
