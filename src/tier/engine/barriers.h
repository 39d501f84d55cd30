// Barriers: truncates and unlinks, which need a file for themselves.
//
//   space for two records ─► no flush of the file ─► intent ─► backing file cut ─► end ─► answered
//                                                                    │ refused: the intent is cancelled, or
//                                                                    the cut tried again
//
// A truncate has an intent and an end in the log, if the log has anything behind the new size: recovery
// repeats an intent without an end. The end says whether the backing file was cut. Ids are never used again,
// so an unlink needs no record.
//
// Invariants: (1) at most one barrier of a file has begun, and no write of the file is under way then; (2)
// the segment with an intent is not erased before the end; (3) map and size of the file change when the
// backing file is cut, and not before.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tier/engine/flusher.h"
#include "tier/engine/log_records.h"
#include "tier/engine/losses.h"
#include "tier/engine/range_order.h"
#include "tier/engine/shared.h"
#include "tier/engine/syncs.h"

namespace swale::tier {

class Barriers {
 public:
  Barriers(Shared* shared, LogRecords* records, Syncs* syncs, Losses* losses, Flusher* flusher,
           RangeOrder* order)
      : shared_(*shared),
        records_(*records),
        syncs_(*syncs),
        losses_(*losses),
        flusher_(*flusher),
        order_(*order) {}

  // Nothing of its file is under way.
  void begin(OpIndex index);
  // Recovery: a truncate whose intent stands in the log without an end.
  void repeat(OpIndex index, const RecordHeader& intent);
  // It is the first that waits for space in the log: takes space for both records. False: wait.
  bool take_space(OpIndex index);
  void advance() {
    for (size_t i = 0; i < begun_.size(); ++i) advance(begun_[i]);
  }

  // Its record was appended; is durable; can never be. If the append has failed, the log has failed before.
  void appended(OpIndex index, Code code);
  void record_durable(OpIndex index);
  void record_failed(OpIndex index, Code code);
  // The backing file was changed, and that change synced; or not.
  void backing_changed(OpIndex index, Code code);
  void backing_synced(OpIndex index, Code code);
  // The log has failed: those that have no intent in it yet end.
  void log_failed(Code code);
  // The segment is free: so are the intents in it.
  void segment_erased(uint32_t segment);
  void end(OpIndex index, Code code);

  bool any() const { return !begun_.empty(); }
  size_t count() const { return begun_.size(); }
  // Whether a backing file has stale bytes behind a cut that it has refused.
  bool cuts_refused() const;
  uint32_t cut_failures() const { return cut_failures_; }  // one after the other
  Nanos next_event() const { return cut_retry_ > shared_.now && cuts_refused() ? cut_retry_ : kForever; }

 private:
  void advance(OpIndex index);
  void append_record(OpIndex index, RecordType type);
  void emit_cut(OpIndex index);
  void backing_change_durable(OpIndex index);
  void cut_refused(OpIndex index, Code code);
  void wait_for_abandonment(OpIndex index);
  void release_held_segment(Op* op);

  Shared& shared_;
  LogRecords& records_;
  Syncs& syncs_;
  Losses& losses_;
  Flusher& flusher_;
  RangeOrder& order_;
  std::vector<OpIndex> begun_;
  Nanos cut_retry_ = 0;  // no truncate that was refused is tried before
  uint32_t cut_failures_ = 0;
};

}  // namespace swale::tier
