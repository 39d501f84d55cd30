// Engine: the tiered write buffer as one passive state machine (ssdup-plus; docs/design/tier.md has the rules).
//
//   write, truncate, … ─► held range ─► redirector ─► append to the log ─► extent map ─► flush ─┐
//                                           └──► elevator ◄─────────────────────────────────────┘ ─► backing device
//
// Requests, completions and the time go in; actions come out, which the driver carries out and completes. The engine
// sees no payload: a request is known by its ticket, bytes in the log by their address, bytes on their way from the log to
// the backing device by the number of the driver's buffer.
//
// Invariants: (1) Writes that overlap happen one after the other, in the order in which they came: a write holds its range
// until its data stands where reads find it. (2) A range that has live bytes in the log, flushed or not, is written to the
// log only. So no record of the log is ever older than the backing device, and recovery may replay all of them. (3) Two
// writes to the backing device that overlap are never in flight together. (4) A segment is erased after the backing device
// was synced, after the log was synced, and after all segments whose records its own make void.
//
// Threads: one at a time. Time that goes back counts as standing still, and goes on from there.
// Errors: completions carry codes. A failed append makes the log read-only: it is flushed, abandoned, and the engine goes on
// with the backing device alone. A range whose newest acknowledged bytes are lost is an extent of state kLost until it is
// overwritten or the loss is accepted; the driver keeps the list of these durably (kSaveLosses). std::bad_alloc leaves the engine unusable: what was acknowledged is recovered from the log.
// Limits: Options. Offsets below 2^48; one write at most kWriteBytesMax.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tier/engine/elevator.h"
#include "tier/engine/engine_stats.h"
#include "tier/engine/engine_types.h"
#include "tier/engine/epochs.h"
#include "tier/engine/extent_map.h"
#include "tier/engine/held_ranges.h"
#include "tier/engine/settled.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"
#include "tier/log/log_space.h"
#include "tier/log/loss_list.h"
#include "tier/policy/options.h"
#include "tier/policy/traffic.h"

namespace swale::tier {

class Engine {
 public:
  explicit Engine(const Options& options);

  // A file by its persistent id, of `size` bytes on the backing device. `base`: where it lies there, as far as known; it
  // orders the queue.
  FileIndex open_file(uint64_t id, uint64_t base, uint64_t size);
  // What a clean end may promise of the log's segments. None: the log has failed, or a record is being written. Call when
  // nothing is under way.
  std::optional<std::vector<SegmentSeal>> segment_seals() const;
  // Ends the use of a file that has nothing in the log and nothing under way; false: it has, and nothing happens. open_file
  // may give the index to another file afterwards.
  bool close_file(FileIndex file);
  // By their ordinals: the newest segment, and the oldest one that has records. Records of a file that was closed when a
  // segment was the newest are gone once the oldest one is newer.
  uint64_t newest_segment() const { return log_.ordinal(); }
  uint64_t oldest_segment() const;
  uint64_t file_size(FileIndex file) const { return files_[file].size; }
  uint64_t file_base(FileIndex file) const { return files_[file].base; }
  uint64_t file_id(FileIndex file) const { return files_[file].id; }
  bool file_unlinked(FileIndex file) const { return files_[file].unlinked; }
  // The failure that the file's next sync will tell: an acknowledged write was lost. kOk: none was.
  Code deferred_failure(FileIndex file) const { return files_[file].deferred; }

  // What opening has found: what scan_segment found in each segment, the records of the queue that a killed process has
  // left, and the list of losses.
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

  // Requests. Each is answered by one kAcknowledge; the buffer of a write is the engine's until it is released:
  // by that answer, or by a kRelease.
  void write(Ticket ticket, FileIndex file, uint64_t offset, uint32_t length, Nanos now);
  void truncate(Ticket ticket, FileIndex file, uint64_t size, Nanos now);
  // Emits kUnlink once nothing of the file is under way; the driver removes it (or renames another file over it).
  void unlink(Ticket ticket, FileIndex file, Nanos now);
  // Answered when all writes to the file that came before are durable: waits for no other file's. Fails if one of them was lost
  // after its acknowledgement, or may be because a sync failed; that failure is told once.
  void sync(Ticket ticket, FileIndex file, Nanos now);
  // Answered when everything that came before is on the backing device, synced; seals the active segment.
  void drain(Ticket ticket, Nanos now);

  // Appends a mark that everything acknowledged is settled, if the log does not say so yet. Before a clean end.
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
  struct FileRange {
    uint64_t begin;
    uint64_t end;
  };
  void read_damaged(uint32_t piece, const std::vector<FileRange>& ranges, Nanos now);
  void advance(Nanos now);
  // When advance should be called at the latest, by the driver's clock; kForever: only after the next request or completion.
  Nanos next_event() const;

  // The next action to be carried out, in order; null: there is none. Valid until any other call.
  const Action* next_action() {
    if (actions_taken_ < actions_end_) return &actions_[actions_taken_++];
    actions_taken_ = actions_end_ = 0;
    return nullptr;
  }
  const Slot& slot(uint32_t id) const { return elevator_.slot(id); }
  const FlushPiece& flush_piece(uint32_t buffer) const { return pieces_[buffer]; }
  uint32_t flush_buffers() const { return static_cast<uint32_t>(pieces_.size()); }

  Stats stats() const;
  // What would be lost if the SSD were lost now: dirty bytes by file.
  std::vector<std::pair<FileIndex, uint64_t>> dirty_files() const;
  // What is lost, and what was accepted and may still stand in the log. kSaveLosses: what is to be written.
  LossList losses() const;
  const LossList& losses_to_save() const { return *loss_snapshot_; }
  bool idle() const;  // nothing is under way or waits
  size_t map_bytes() const;
  size_t map_extents() const;
  const Traffic& traffic() const { return traffic_; }
  const Options& options() const { return options_; }
  std::string describe() const;  // for whoever asks why nothing happens
 private:
  using OpIndex = uint32_t;

  static constexpr OpIndex kNoOp = ~OpIndex{0};

  // What a file's syncs have shown: engine_waiters.cc.
  struct SyncHabit {
    uint64_t since_bytes = 0;   // written since the last sync
    uint32_t since_writes = 0;  //
    double bytes = 0;           // between two syncs, smoothed; 0: nobody has synced it
    double writes = 0;          // the same
    double direct_ns = 0;       // what a sync took for which the backing device had to write, smoothed
    Nanos measured = 0;         // when that was found last
    bool direct = false;        // a write has gone to the backing device since the last sync
    bool to_log = false;        // what is written until the next sync goes to the log
    bool small_to_log = false;  // of that, what is short
  };

  struct File {
    uint64_t id = 0;
    uint64_t base = 0;
    uint64_t size = 0;
    ExtentMap map;  // of the log
    Epochs epochs;
    double direct_cost = 0;  // ns a byte of direct writes, smoothed
    SyncHabit habit;
    uint32_t held = 0;               // ranges of held_
    uint64_t log_sync = 0;           // the number of the sync of the log that covers its newest record
    uint64_t syncs_started = 0;      // of the file alone, on the backing device
    uint64_t syncs_done = 0;         // one at a time
    uint32_t flushing = 0;           // pieces of flushes
    uint32_t blocked = 0;            // ops in blocked_
    OpIndex barrier = kNoOp;         // a truncate or unlink that has begun
    bool flush_overwritten = false;  // something that is being flushed was; until no flush is under way
    bool no_flush = false;           // the barrier waits for flushes to end
    bool unlinked = false;
    bool sync_wanted = false;   // another one, after that under way
    Code deferred = Code::kOk;  // of a write that was lost after its acknowledgement
  };

  struct Op {
    enum class Kind : uint8_t { kWrite, kTruncate, kUnlink };
    enum class Stage : uint8_t {
      kFree,
      kBlocked,      // by an overlapping op before it
      kLogWait,      // for space in the log
      kAppending,    //
      kSlotWait,     // for a slot of the elevator
      kQueued,       // in the elevator, or being written
      kSyncWait,     // for the sync that makes it durable
      kAbandonWait,  // for the failed log to be abandoned
      kLossWait,     // for the list of losses without its range to be durable
      kBarrier,      // truncate, unlink: see Step
      kPinned,       // finished; a read still uses its buffer
    };
    // Of a barrier. A truncate that recovery repeats ends with the erasure of its intent, any other with a record, which says
    // whether the backing file was cut; if the log fails, with its abandonment.
    enum class Step : uint8_t {
      kSpace,
      kQuiesce,
      kIntent,
      kIntentSync,
      kBacking,
      kBackingSync,
      kRefused,  // the backing device has refused the cut's sync, or a repeated cut; told, and tried again
      kEnd,
      kEndSync,
      kErasure,
      kAbandonment
    };
    Kind kind = Kind::kWrite;
    Stage stage = Stage::kFree;
    Step step = Step::kSpace;
    bool stream_to_ssd = false;  // what the detector says of its stream
    bool acknowledged = false;
    bool needs_record = false;             // truncate: something of the log lies behind the new end
    bool repeated = false;                 // truncate: by recovery
    bool told = false;                     // truncate: of its failure, and goes on
    bool cancelled = false;                // truncate: its last record takes the intent back
    bool over_loss = false;                // without a log, over a range that is lost
    uint32_t held_segment = ~uint32_t{0};  // truncate: has the intent, and is not erased before the end
    FileIndex file = 0;
    uint32_t length = 0;
    Code failure = Code::kOk;  // truncate: what is answered in the end
    uint64_t offset = 0;       // truncate: the new size
    ExtentMap::Position at;    // write: where its range stands in the map, as a hint
    Ticket ticket = 0;
    uint64_t address = 0;
    uint32_t segment = 0;        // of the address
    uint64_t sequence = 0;       // of its record; of a truncate: of the intent
    uint64_t last_sequence = 0;  // truncate: of its last record
    uint32_t file_epoch = 0;
    uint32_t epoch = 0;
    uint32_t pins = 0;
  };

  struct SyncLane {
    uint64_t started = 0;
    uint64_t done = 0;
    bool in_flight = false;
    bool wanted = false;
    Nanos due = kForever;
    Nanos began = 0;  // the one in flight
  };
  struct PendingSync {
    Ticket ticket;
    FileIndex file;  // kNoFile: a drain
    uint32_t epoch;
    uint64_t ordinal;  // drain: of the youngest segment that it covers
    enum class Stage : uint8_t { kWrites, kLog, kBacking } stage;
    uint64_t number;           // of the sync that it waits for; kLog of a file: of the log
    uint64_t errors;           // drain: flush errors when it began
    uint64_t file_number = 0;  // of a file: the sync of the file alone that it waits for
    Nanos began = 0;           // of a file: when it was asked for
    bool direct = false;       // of a file: the backing device has to write for it
    bool logged = false;       // of a file: it waits for a sync of the log
  };
  static constexpr FileIndex kNoFile = ~FileIndex{0};
  static constexpr uint64_t kLossBase = uint64_t{1} << 45;  // beyond all logs
  static constexpr uint64_t kLossStride = kWriteBytesMax;

  // engine.cc: writes
  OpIndex new_op(Op::Kind kind, Ticket ticket, FileIndex file, Nanos now);
  void refuse(Ticket ticket, FileIndex file, Code code);
  bool conflicts(const Op& op) const;
  void block(OpIndex index);
  void retry_blocked();
  bool hold(OpIndex index);
  void begin(OpIndex index);
  void begin_write(OpIndex index);
  void route(OpIndex index);
  bool wants_log(const Op& op);
  bool is_cheap(const File& file) const;
  bool waits_when_full(const Op& op) const;
  void watch_arrivals(uint32_t length);
  bool overloaded() const {
    return arrival_cost_ > 0 && direct_cost_ > options_.swale.overload_ratio * arrival_cost_;
  }
  double budget_left() const;
  bool is_costly(FileIndex file) const;
  bool stripe_wants_log(const Op& op);
  bool costly_wants_log(const Op& op) const;
  bool log_usable() const { return log_state_ == LogState::kGood; }

  // engine_waiters.cc: what somebody waits for
  bool absorb(OpIndex index);
  void divert(SlotIndex slot, uint64_t from, uint64_t to);
  void divert_overlapping(const Op& op);
  void divert_for_sync(FileIndex file);
  void expect_sync(File* file, uint32_t length);
  bool log_answers_sooner(const File& file) const;
  bool syncs_want_log(const Op& op);
  PendingSync watched_sync(Ticket ticket, FileIndex file);
  void sync_answered(const PendingSync& done, Code code);
  bool somebody_waits_for_backing() const;
  static void smooth_sync(double* value, Nanos sample) {
    *value += (static_cast<double>(sample) - *value) * (*value == 0 ? 1 : 1.0 / 8);
  }
  static constexpr Nanos kQuietNs = 100'000'000;
  bool take_log_space(Op* op);
  void serve_log_waiters();
  void append(OpIndex index);
  void appended(OpIndex index, Code code);
  void to_backing(OpIndex index);
  void admitted(OpIndex index);
  void direct_done(OpIndex index, Code code);
  void release_range(OpIndex index);
  void extend_to(const Op& op);
  void finish(OpIndex index, Code code);
  void release(OpIndex index);
  void free_op(OpIndex index);
  void emit(const Action& action) { next_free_action() = action; }
  // An action to be filled in: the frequent ones are neither copied nor cleared. Its record and what only rare kinds have are
  // those of an action before it.
  Action& emit(Action::Kind kind, FileIndex file, Ticket ticket, uint32_t id = 0) {
    Action& action = next_free_action();
    action.kind = kind;
    action.code = Code::kOk;
    action.queued = action.released = false;
    action.id = id;
    action.file = file;
    action.ticket = ticket;
    return action;
  }
  Action& next_free_action() {
    if (actions_end_ == actions_made_) more_actions();
    return actions_[actions_end_++];
  }
  [[gnu::noinline]] void more_actions();
  void pump();
  bool needs_rare_work() const;
  bool do_rare_work();
  bool may_start_flush() const {
    return flush_segment_ < log_.count() && !flush_pass_done_ && flush_pieces_ < options_.flush_pieces_max &&
           !free_pieces_.empty();
  }
  // What found no space finds none before a segment is free, or the backing device fails.
  bool may_serve_log_waiters() const {
    return !log_.exhausted() || flush_failures_ > 0 || flush_retry_ > now_ || cut_failures_ > 0;
  }
  bool may_place() const { return !loaded_.empty() && elevator_.changes() != place_refused_; }
  // No mark while appends are under way, or wait.
  bool may_settle() const {
    if (settle_due_ != kForever || !settle_waiters_.empty()) return true;
    return last_logged_ > marked_ && settled_.all() && log_waiters_.empty();
  }
  // There is something to flush, and a gate is closed.
  bool paused() const { return flush_segment_ < log_.count() && !flush_allowed(); }
  bool may_dispatch() const { return slots_in_flight_ < options_.backing_depth && !elevator_.empty(); }
  void set_now(Nanos now);

  // engine_flush.cc: from the log to the backing device
  bool flush_allowed() const;
  bool quiet() const;
  void select_segment();
  void start_flush();
  void start_piece(FileIndex file, ExtentMap::Position at, bool passing);
  bool next_dirty(FileIndex* file, ExtentMap::Position* at);
  ExtentMap::Position next_in_batch(const ExtentMap& map, ExtentMap::Position at) const;
  void restart_pass();
  bool flush_is_urgent() const;
  bool place(uint32_t piece);
  void fill_gap(FileIndex file);
  void admit();
  bool dispatch();
  void slot_written(uint32_t slot, Code code);
  void piece_read(uint32_t piece, Code code);
  void unpin_piece(const FlushPiece& piece);
  void free_piece(uint32_t piece);
  void piece_done(uint32_t piece, Code code);
  void lose(uint32_t piece);
  void carve_map(FileIndex file, uint64_t from, uint64_t to, uint32_t by_segment);
  void made_void(File* file, const Extent& extent, uint32_t by_segment);
  bool is_flushed(FileIndex file, uint64_t from, uint64_t to) const;

  // engine_segments.cc: erasing, syncs, the end of a failed log
  void seal_old();
  void advance_segments();
  void remove_clean(uint32_t segment);
  uint64_t want_sync(SyncLane* lane, Nanos due);
  void start_syncs();
  void log_synced(Code code);
  void backing_synced(Code code);
  void backing_sync_failed(Code code);
  uint64_t want_log_sync(const File& file);
  uint64_t want_file_sync(FileIndex index);
  void start_file_sync(FileIndex index);
  void file_synced(FileIndex index, Code code);
  void dirty_again(File* file);
  void end_sync_waiters(std::deque<std::pair<uint64_t, OpIndex>>* waiters, uint64_t done, Code code);
  void log_failed(Code code);
  void fail_log_sync_waiters(Code code);
  void advance_abandon();
  // The abandonment syncs files itself, and the system tells a failure to one of two.
  bool waits_for_abandonment(const SyncLane& lane) const {
    return log_state_ == LogState::kAbandoning && &lane == &backing_lane_;
  }
  void abandoned(Code code);

  // engine_control.cc: truncate, unlink, sync, drain
  void begin_barrier(OpIndex index);
  void advance_barrier(OpIndex index);
  bool take_barrier_space(OpIndex index);
  void end_repeated(uint32_t segment);
  void append_control(OpIndex index, RecordType type);
  void control_appended(OpIndex index, Code code);
  void control_durable(OpIndex index);
  void control_failed(OpIndex index, Code code);
  void backing_changed(OpIndex index, Code code);
  void backing_change_durable(OpIndex index);
  void emit_cut(OpIndex index);
  void cut_refused(OpIndex index, Code code);
  void refuse_blocked(FileIndex file, Code code);
  bool cuts_refused() const;
  void wait_for_abandonment(OpIndex index);
  void release_held_segment(Op* op);
  void end_barrier(OpIndex index, Code code);
  bool advance_syncs();  // whether one is over
  bool advance_sync(PendingSync* pending, Code* result);
  uint64_t control_bytes() const { return record_space(0, options_.log_alignment); }
  void fill_header(RecordHeader* record, FileIndex file, uint64_t address, uint32_t segment);

  // engine_losses.cc: what was acknowledged and is gone
  void lose_range(FileIndex file, uint64_t from, uint64_t to, const LostRange& as);
  void lose_logged(FileIndex file, uint64_t from, uint64_t to, uint64_t address, LossReason reason);
  void drop_losses(FileIndex file, uint64_t from, uint64_t to);
  bool has_losses(FileIndex file, uint64_t from, uint64_t to) const;
  bool losses_saved() const { return loss_version_ == loss_saved_; }
  void losses_changed() {
    ++loss_version_;
    rare_work_ = true;
  }
  void save_losses();
  void losses_written(Code code);
  void wait_for_losses(OpIndex index);
  void losses_told(OpIndex index, Code code);
  struct Acceptance {
    Ticket ticket;
    uint64_t version;
    size_t losses;  // how many there were: later ones are not accepted
  };
  void end_acceptance(const Acceptance& done);

  // engine_recovery.cc
  struct Replayed;
  void restore_segments(const Found& found);
  std::vector<Replayed> order_replay(const Found& found);
  void replay(const std::vector<Replayed>& items, Recovered* recovered);
  void replay_record(const RecordHeader& record, FileIndex file, const DamagedRecord* damaged);
  void replay_write(const RecordHeader& record, FileIndex file, const DamagedRecord* damaged);
  void repeat_truncate(const RecordHeader& record, FileIndex file);

  // engine_settle.cc
  void append_mark();
  void mark_appended(Code code);
  void advance_settle();

  uint64_t position(FileIndex file, uint64_t offset) const { return files_[file].base + offset; }
  bool page_cache() const { return options_.durability == Durability::kPageCache; }
  Nanos sync_due() const {
    return options_.durability == Durability::kGroupCommit ? now_ + options_.group_commit_ns : now_;
  }

  enum class LogState : uint8_t { kGood, kReadOnly, kAbandoning, kGone };

  const Options options_;
  Nanos now_ = 0;    // the sum of all steps ahead
  Nanos clock_ = 0;  // what the driver said last
  std::vector<File> files_;
  std::vector<FileIndex> free_files_;
  std::vector<Op> ops_;
  const Op new_op_ = {};  // to be copied: clearing takes gcc a loop
  std::vector<OpIndex> free_ops_;
  HeldRanges held_;                    // of writes that have begun, by op
  std::vector<OpIndex> read_holders_;  // of plan_read
  Elevator elevator_;
  LogSpace log_;
  LogState log_state_ = LogState::kGood;
  Traffic traffic_;
  Epochs epochs_;
  uint64_t sequence_ = 0;
  std::vector<Action> actions_;  // from actions_taken_ to actions_end_: to be taken; beyond: used again
  size_t actions_taken_ = 0;
  size_t actions_end_ = 0;
  size_t actions_made_ = 0;  // the size of actions_: to be had without a division

  std::deque<OpIndex> blocked_;
  std::deque<OpIndex> log_waiters_;
  std::deque<OpIndex> slot_waiters_;
  std::vector<OpIndex> abandon_waiters_;
  std::vector<OpIndex> barriers_;  // that have begun
  bool retry_blocked_ = false;
  bool rare_work_ = false;  // what needs_rare_work() asks for; may be true without need

  std::vector<FlushPiece> pieces_;
  std::vector<uint32_t> free_pieces_;
  std::deque<uint32_t> loaded_;    // read, wait for a slot
  uint32_t flush_pieces_ = 0;      // in use, without those in passing
  uint32_t flush_segment_;         // the oldest of the batch that is flushed; log_.count(): none
  std::vector<uint8_t> in_batch_;  // by segment
  uint32_t batch_segments_ = 0;
  bool batch_begun_ = false;               // until then it may still grow
  uint64_t place_refused_ = ~uint64_t{0};  // Elevator::changes() when the first of loaded_ found no place
  bool flush_pass_done_ = false;           // the end of the file order is reached
  bool flush_again_ = false;               // something may lie behind the cursor
  bool flush_skipped_ = false;             // the pass has skipped something that was under way
  FileIndex flush_file_ = 0;
  uint64_t flush_offset_ = 0;
  ExtentMap::Position flush_at_;  // the extent that was found last, as a hint
  const double flush_depth_max_;  // slots of the elevator
  const double flush_used_max_;   // bytes of the log
  bool flush_paused_ = false;
  bool segments_changed_ = false;
  Nanos flush_retry_ = 0;        // no flush before
  uint32_t flush_failures_ = 0;  // one after the other
  Code flush_failure_ = Code::kIoError;
  Nanos cut_retry_ = 0;         // no truncate that was refused is tried before
  uint32_t cut_failures_ = 0;   // refused truncates, one after the other
  uint32_t read_failures_ = 0;  // of the log, one after the other

  uint32_t slots_in_flight_ = 0;
  Nanos seal_after_ = 0;             // nothing is idle or old before
  std::vector<Nanos> slot_started_;  // by slot
  std::vector<Nanos> direct_times_;  // ring: when the last direct writes were admitted
  size_t direct_next_ = 0;
  bool pressed_ = false;        // the queue has been full, and has not become short since
  bool several_files_ = false;  // have been written
  FileIndex last_file_ = kNoFile;
  double direct_cost_ = 0;  // ns a byte, smoothed
  double flush_cost_ = 0;
  double costliest_ = 0;                // the largest File::direct_cost among files that are being written
  uint32_t backing_reads_ = 0;          // under way
  Nanos backing_read_end_ = -kQuietNs;  // when the last one ended
  double slot_ns_ = 0;                  // what the backing device takes for a slot, smoothed
  double log_sync_ns_ = 0;              // what a sync of the log takes, smoothed
  double file_sync_ns_ = 0;      // what a sync takes for which the backing device has to write, smoothed
  uint32_t measured_syncs_ = 0;  // such syncs under way
  Nanos measured_sync_end_ = -kQuietNs;  // when the last one ended
  double arrival_cost_ = 0;              // ns a byte at which writes arrive when nothing holds them up
  uint64_t window_bytes_ = 0;
  uint32_t window_writes_ = 0;
  Nanos window_start_ = 0;

  SyncLane log_lane_;
  SyncLane backing_lane_;
  uint32_t file_syncs_ = 0;  // under way
  std::deque<std::pair<uint64_t, OpIndex>> log_sync_waiters_;
  std::deque<std::pair<uint64_t, OpIndex>> backing_sync_waiters_;
  std::vector<PendingSync> pending_syncs_;
  uint32_t drains_ = 0;
  uint32_t queue_segment_ = ~uint32_t{0};  // of the recovered queue

  // What the address of an extent of state kLost means: kLossBase + number * kLossStride + bytes from its begin.
  struct Loss {
    LostRange
        range;  // as it was when it was found: file, offset and length of the extent tell what is left of it
    uint32_t segment;  // that the record stands in; log_.count(): none
  };
  std::vector<Loss> losses_;
  std::vector<LostRange> accepted_;
  uint64_t loss_version_ = 0;
  uint64_t loss_saved_ = 0;
  uint64_t loss_saving_ = 0;  // the version that is being written
  uint64_t loss_sync_ = 0;    // before it, of...
  SyncLane* loss_lane_ = nullptr;
  std::optional<LossList> loss_snapshot_;
  bool loss_in_flight_ = false;
  Nanos loss_retry_ = 0;
  std::deque<std::pair<uint64_t, OpIndex>> loss_waiters_;
  std::vector<Acceptance> acceptances_;

  Settled settled_;
  uint64_t last_logged_ = 0;  // the newest record of the log that is settled or waits for a sync
  uint64_t marked_ = 0;       // what the newest header says is settled
  bool mark_in_flight_ = false;
  Nanos settle_due_ = kForever;
  uint64_t mark_address_ = 0;
  uint64_t mark_sequence_ = 0;
  std::vector<Ticket> settle_waiters_;

  int64_t wear_day_ = 0;
  uint64_t wear_bytes_ = 0;
  uint32_t map_check_ = 0;
  bool map_full_ = false;
  Stats stats_;
};

}  // namespace swale::tier
