// Writes: the way of a write: its range, the device that takes it, the answer.
//
//   begin ─► range held ─► redirector ─► space in the log ─► appended ─► in the map ──────┐
//                               └──────► slot of the elevator ─► written ─► synced ───────┴─► answered
//
// A range with bytes in the log goes to the log, whatever the redirector says, and waits for space there.
// Bytes that wait in the elevator move to the log when somebody waits for them and the log is sooner
// (writes_waiting.cc).
//
// Invariants: (1) a write is in one place: blocked, waiting for the log, in the log's hands, waiting for a
// slot, or in the elevator; (2) it holds its range until its data stands where reads find it; (3) a file
// grows when the bytes stand there.
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "tier/engine/backing_queue.h"
#include "tier/engine/barriers.h"
#include "tier/engine/costs.h"
#include "tier/engine/flusher.h"
#include "tier/engine/log_records.h"
#include "tier/engine/losses.h"
#include "tier/engine/range_order.h"
#include "tier/engine/redirector.h"
#include "tier/engine/shared.h"
#include "tier/engine/syncs.h"

namespace swale::tier {

class Writes {
 public:
  Writes(Shared* shared, LogRecords* records, Syncs* syncs, Losses* losses, const Costs* costs,
         BackingQueue* queue, Redirector* redirector, Flusher* flusher, RangeOrder* order, Barriers* barriers)
      : shared_(*shared),
        records_(*records),
        syncs_(*syncs),
        losses_(*losses),
        costs_(*costs),
        queue_(*queue),
        redirector_(*redirector),
        flusher_(*flusher),
        order_(*order),
        barriers_(*barriers) {}

  // A write that Options allow.
  void write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length);
  // A truncate or unlink: begins, or is blocked by what came before.
  void change(OpIndex index);
  // Its range is held: it looks for a device. Again after a log that it waited for has failed, or is gone.
  void route(OpIndex index);

  // What was blocked and may begin, does.
  void retry_blocked();
  // Those that wait for space in the log, in order. May: what found no space finds none before a segment is
  // free, or the backing device fails.
  bool may_serve_log_waiters() const {
    return !shared_.log.exhausted() || flusher_.failures() > 0 || flusher_.failing() ||
           barriers_.cut_failures() > 0;
  }
  void serve_log_waiters();
  // Waiting writes and loaded pieces get slots in turn.
  void admit();

  // The driver has carried out what a write asked for. If the append has failed, the log has failed before.
  void appended(OpIndex index, Code code);
  void written(OpIndex index, Code code);
  // The sync that it waits for is over.
  void synced(OpIndex index, Code code);
  // A sync of the file comes, and would wait for what the elevator has of it.
  void divert_for_sync(FileIndex file);

 private:
  void begin(OpIndex index);
  void append(OpIndex index);
  void to_backing(OpIndex index);
  void admitted(OpIndex index);
  void extend_to(const Op& op);
  bool absorb(OpIndex index);
  void divert(SlotIndex slot, uint64_t from, uint64_t to);
  void divert_overlapping(const Op& op);
  void finish_over_loss(OpIndex index);

  Shared& shared_;
  LogRecords& records_;
  Syncs& syncs_;
  Losses& losses_;
  const Costs& costs_;
  BackingQueue& queue_;
  Redirector& redirector_;
  Flusher& flusher_;
  RangeOrder& order_;
  Barriers& barriers_;
};

}  // namespace swale::tier
