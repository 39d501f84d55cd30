// Engine: the tiered write buffer as one passive state machine (ssdup-plus; docs/design/tier.md has the
// rules).
//
//   write, truncate, … ─► held range ─► redirector ─► append to the log ─► extent map ─► flush ─┐
//                                           └──► elevator ◄─────────────────────────────────────┘ ─► backing
//                                           device
//
// Requests, completions and the time go in; actions come out, which the driver carries out and completes. The
// engine sees no payload: a request is known by its ticket, bytes in the log by their address, bytes on their
// way from the log to the backing device by the number of the driver's buffer.
//
// Invariants: (1) Writes that overlap happen one after the other, in the order in which they came: a write
// holds its range until its data stands where reads find it. (2) A range that has live bytes in the log,
// flushed or not, is written to the log only. So no record of the log is ever older than the backing device,
// and recovery may replay all of them. (3) Two writes to the backing device that overlap are never in flight
// together. (4) A segment is erased after the backing device was synced, after the log was synced, and after
// all segments whose records its own make void.
//
// Threads: one at a time. Time that goes back counts as standing still, and goes on from there.
// Errors: completions carry codes. A failed append makes the log read-only: it is flushed, abandoned, and the
// engine goes on with the backing device alone. A range whose newest acknowledged bytes are lost is an extent
// of state kLost until it is overwritten or the loss is accepted; the driver keeps the list of these durably
// (kSaveLosses). std::bad_alloc leaves the engine unusable: what was acknowledged is recovered from the log.
// Limits: Options. Offsets below 2^48; one write at most kWriteBytesMax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tier/engine/backing_queue.h"
#include "tier/engine/barriers.h"
#include "tier/engine/costs.h"
#include "tier/engine/flusher.h"
#include "tier/engine/log_records.h"
#include "tier/engine/losses.h"
#include "tier/engine/range_order.h"
#include "tier/engine/redirector.h"
#include "tier/engine/shared.h"
#include "tier/engine/sync_requests.h"
#include "tier/engine/syncs.h"
#include "tier/engine/writes.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"

namespace swale::tier {

class Engine {
 public:
  explicit Engine(const Options& options);

  // A file by its persistent id, of `size` bytes on the backing device. `base`: where it lies there, as far
  // as known; it orders the queue.
  FileIndex open_file(uint64_t id, uint64_t base, uint64_t size);
  // What a clean end may promise of the log's segments. None: the log has failed, or a record is being
  // written. Call when nothing is under way.
  std::optional<std::vector<SegmentSeal>> segment_seals() const { return records_.seals(); }
  // Ends the use of a file that has nothing in the log and nothing under way; false: it has, and nothing
  // happens. open_file may give the index to another file afterwards.
  bool close_file(FileIndex file);
  // By their ordinals: the newest segment, and the oldest one that has records. Records of a file that was
  // closed when a segment was the newest are gone once the oldest one is newer.
  uint64_t newest_segment() const { return shared_.log.ordinal(); }
  uint64_t oldest_segment() const;
  uint64_t file_size(FileIndex file) const { return shared_.files[file].size; }
  uint64_t file_base(FileIndex file) const { return shared_.files[file].base; }
  uint64_t file_id(FileIndex file) const { return shared_.files[file].id; }
  bool file_unlinked(FileIndex file) const { return shared_.files[file].unlinked; }
  // The failure that the file's next sync will tell: an acknowledged write was lost. kOk: none was.
  Code deferred_failure(FileIndex file) const { return shared_.files[file].deferred; }

  // What opening has found: what scan_segment found in each segment, the records of the queue that a killed
  // process has left, and the list of losses.
  struct Found {
    std::vector<SegmentScan> segments;  // after take_torn: what is damaged had been acknowledged
    std::vector<RecordHeader> queued;
    std::vector<DamagedRecord> queued_damaged;
    LossList losses;
  };
  struct Recovered {
    uint64_t records = 0;
    uint64_t dropped = 0;  // of files that are gone
    uint64_t dirty_bytes = 0;
    uint64_t truncates = 0;       // carried out again
    std::vector<LostRange> lost;  // that reads refuse, now
  };
  // Once, before the first request, with all files open that the log may name.
  Recovered recover(const Found& found, Nanos now);

  // Requests. Each is answered by one kAcknowledge; the buffer of a write is the engine's until it is
  // released: by that answer, or by a kRelease.
  void write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length, Nanos now);
  void truncate(Ticket ticket, FileIndex file, uint64_t size, Nanos now);
  // Emits kUnlink once nothing of the file is under way; the driver removes it (or renames another file over
  // it).
  void unlink(Ticket ticket, FileIndex file, Nanos now);
  // Answered when all writes to the file that came before are durable: waits for no other file's. Fails if
  // one of them was lost after its acknowledgement, or may be because a sync failed; that failure is told
  // once.
  void sync(Ticket ticket, FileIndex file, Nanos now);
  // Answered when everything that came before is on the backing device, synced; seals the active segment.
  void drain(Ticket ticket, Nanos now);

  // Appends a mark that everything acknowledged is settled, if the log does not say so yet. Before a clean
  // end.
  void settle(Ticket ticket, Nanos now);
  // The user knows what is lost: reads give what the backing device has there. Answered when that is durable.
  void accept_losses(Ticket ticket, Nanos now);

  // Where the bytes of [offset, offset + length) are. What the plan names stays readable until read_done.
  void plan_read(FileIndex file, uint64_t offset, uint64_t length, ReadPlan* plan);
  void read_done(const ReadPlan& plan, Nanos now);

  // An operator's wish; yields to waiting writers, waiting control records and drains.
  void pause_flush(bool paused, Nanos now);

  // The driver has carried out an action (by its kind and id).
  void completed(Action::Kind kind, uint32_t id, Code code, Nanos now);
  // Completes kReadLog of a piece: these ranges of the file, all inside the piece, fail their checksums.
  using FileRange = tier::FileRange;
  void read_damaged(uint32_t piece, const std::vector<FileRange>& ranges, Nanos now);
  void advance(Nanos now);
  // When advance should be called at the latest, by the driver's clock; kForever: only after the next request
  // or completion.
  Nanos next_event() const;

  // The next action to be carried out, in order; null: there is none. Valid until any other call.
  const Action* next_action() { return shared_.outbox.take(); }
  const Slot& slot(uint32_t id) const { return queue_.elevator().slot(id); }
  const FlushPiece& flush_piece(uint32_t buffer) const { return flusher_.piece(buffer); }
  uint32_t flush_buffers() const { return flusher_.buffers(); }

  Stats stats() const;
  // What would be lost if the SSD were lost now: dirty bytes by file.
  std::vector<std::pair<FileIndex, uint64_t>> dirty_files() const;
  // What is lost, and what was accepted and may still stand in the log. kSaveLosses: what is to be written.
  LossList losses() const { return losses_.list(); }
  const LossList& losses_to_save() const { return losses_.being_saved(); }
  bool idle() const;  // nothing is under way or waits
  size_t map_bytes() const { return shared_.map_bytes(); }
  size_t map_extents() const;
  const Traffic& traffic() const { return redirector_.traffic(); }
  const Options& options() const { return shared_.options; }
  std::string describe() const;  // for whoever asks why nothing happens
 private:
  void set_now(Nanos now) {
    if (now != clock_) step_clock(now);
  }
  void step_clock(Nanos now);
  void pump();
  bool needs_rare_work() const;
  bool do_rare_work();

  // What has ended, and who is to know.
  void appended(uint32_t id, Code code);
  void mark_appended(Code code);
  void piece_read(uint32_t piece, Code code);
  void slot_written(uint32_t slot, Code code);
  void log_synced(Code code);
  void backing_synced(Code code);
  void backing_sync_failed(Code code);
  void file_synced(FileIndex index, Code code);
  void end_sync_waiter(OpIndex index, Code code);
  void end_covered(SyncLane* lane);
  void losses_written(Code code);
  void losses_told(OpIndex index, Code code);

  // engine_segments.cc: erasing, and the end of a log that fails
  void advance_segments();
  void log_failed(Code code);
  void fail_log_sync_waiters(Code code);
  void advance_abandon();
  void abandoned(Code code);

  // engine_recovery.cc
  struct Replayed;
  void restore_segments(const Found& found);
  std::vector<Replayed> order_replay(const Found& found);
  void replay(const std::vector<Replayed>& items, Recovered* recovered);
  void replay_record(const RecordHeader& record, FileIndex file, const DamagedRecord* damaged);
  void replay_write(const RecordHeader& record, FileIndex file, const DamagedRecord* damaged);

  // In this order: a part knows those before it.
  Shared shared_;
  LogRecords records_{&shared_};
  Syncs syncs_{&shared_, &records_};
  Losses losses_{&shared_, &records_, &syncs_};
  Costs costs_{&shared_};
  BackingQueue queue_{&shared_, &costs_};
  Redirector redirector_{&shared_, &records_, &costs_, &queue_};
  Flusher flusher_{&shared_, &records_, &syncs_, &losses_, &costs_, &queue_, &redirector_};
  RangeOrder order_{&shared_};
  Barriers barriers_{&shared_, &records_, &syncs_, &losses_, &flusher_, &order_};
  SyncRequests sync_requests_{&shared_, &records_, &syncs_, &costs_, &redirector_, &barriers_};
  Writes writes_{&shared_, &records_,    &syncs_,   &losses_, &costs_,
                 &queue_,  &redirector_, &flusher_, &order_,  &barriers_};
  Nanos clock_ = 0;  // what the driver said last
};

}  // namespace swale::tier
