// Partition: one rank's share of a massive directory while it is written: an FL-Tree (deltafs-streaming-2020,
// section 4.1) that turns delivered records into runs of a data log and segments of an index log.
//
//   accept(records) ─► memtable A|B per way ─► Task (sort, gather, checksum into an output buffer) ─►
//   IoRequest end_epoch() ─► last memtables ─► all data written ─► sync data ─► segments, footer ─► sync
//   index ─► durable()
//
// Records that are in the order of their hashes already come as whole runs (append_run), without a memtable.
//
// The next epoch is open while one is being closed: its records fill memtables, and its runs are written
// after those of the closing epoch, so that flushing overlaps computing. Its segments wait until the closing
// epoch is durable, because the index log and the blocks of an epoch are in the order of the epochs.
//
// A passive state machine: records and completions in, CPU tasks and I/O requests out. A Task works on memory
// that it owns until finish(), so its owner runs it without holding any lock; everything else is serialised
// by the owner. Tasks and I/O may complete in any order; only the order "data durable before the index that
// points to it is written, segments written before their footer is durable" is kept here.
//
// Memory: all buffers are made and touched at creation (memory_plan.h divides the budget); nothing grows
// afterwards. Sketches and extrema of the open epoch and of the closing one share it. When the sketches'
// memory is full, they are written out as a further segment of the epoch.
// Errors: the first failed I/O is kept in failure(); afterwards no more work is handed out.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "imd/format/extrema_summary.h"
#include "imd/format/run_packer.h"
#include "imd/write/batcher.h"
#include "imd/write/memory_plan.h"
#include "imd/write/source_home.h"
#include "run/footer.h"
#include "run/memtable.h"
#include "run/ordered_records.h"
#include "run/run_builder.h"
#include "run/segment_builder.h"
#include "run/value_format.h"

namespace swale::imd {

// What one rank's share of a job's writing depends on.
struct PartitionParams {
  int32_t rank = 0;  // its number is its partition's
  int32_t size = 1;  // ranks of the job, and so partitions
  uint32_t ways = 1;
  MemoryPlan memory = {};
  bool by_hash = true;                        // else any rank is the home of any key
  std::vector<run::FieldPlace> indexed = {};  // fields whose extrema are kept
  run::Layout layout = {};
  SourceHome* sources = nullptr;  // in the lossy format, of several ranks; must outlive the partition
};

// In IoRequest::buffer: the data lies in no output buffer.
inline constexpr uint32_t kNoBuffer = ~uint32_t{0};

enum class LogFile : uint8_t { kData, kIndex, kValues };

struct IoRequest {
  enum class Kind : uint8_t { kWrite, kSync };
  Kind kind = Kind::kWrite;
  LogFile file = LogFile::kData;
  uint64_t offset = 0;
  Bytes data;  // valid until finish_io
  uint32_t buffer = kNoBuffer;
  EpochNumber epoch = {};
  Nanos began = 0;  // the owner's
};

class Partition {
 public:
  // kResourceExhausted if the memory is not to be had.
  static Result<std::unique_ptr<Partition>> create(const PartitionParams& params);
  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  // The first epoch; the later ones begin by end_epoch.
  void begin_epoch(EpochNumber epoch, uint64_t epoch_id);

  // Call before the first append of an epoch, once the epoch before is durable. The first memtable then takes
  // a quarter of the usual capacity and the second a half, so that storage starts early. Does nothing to a
  // way that has records. Needs the same serialisation as append.
  void start_small();

  // Takes one record that is not encoded and whose home is this partition. `hash` is what is left after the
  // choice of the home (all of it with one rank). Returns the record's place; row is nullptr if the way must
  // make room first. Touches only the memtables being filled, so an owner that has no other source of records
  // may append without the lock that serialises all other calls, except make_room and end_epoch. Requires
  // intake_open().
  struct Appended {
    const char* row;  // the key, then the value
    uint32_t way;
  };
  Appended append(Hash hash, Bytes key, Bytes value) {
    const HashChoice way = choose(hash, params_.ways);
    return {ways_[way.index].filling->append(way.rest, key, value), way.index};
  }
  // Like append, for the records that Memtable::append_quickly takes.
  [[gnu::always_inline]] bool append_quickly(Bytes key, Bytes value, uint64_t* digest) {
    // With one way this is the answer of choose, without the product that the bin would wait for.
    HashChoice way{0, hash_eight_bytes(key.data())};
    if (params_.ways != 1) [[unlikely]]
      way = choose(way.rest, params_.ways);
    return ways_[way.index].filling->append_quickly(way.rest, key.data(), value, digest);
  }
  // Like append, for an encoded record.
  Appended append(Hash hash, const run::RecordView& record) {
    const HashChoice way = choose(hash, params_.ways);
    return {ways_[way.index].filling->append(way.rest, record), way.index};
  }
  // Takes the records of a run of the open epoch. Requires room_for_run, one rank and way, no compression, no
  // indexed fields and no filters.
  void append_run(std::unique_ptr<run::OrderedRecords> records);
  bool room_for_run() const { return intake_open() && !ways_.front().has_work(); }
  // Every way has a memtable for the open epoch. False only for a while after end_epoch.
  bool intake_open() const {
    return std::all_of(ways_.begin(), ways_.end(),
                       [this](const Way& way) { return way.filling_of == open_; });
  }
  // False: the way's other memtable is still being written.
  bool make_room(uint32_t way) { return rotate(ways_[way]); }
  bool has_room(uint32_t way) const { return !ways_[way].has_work() && ways_[way].spare; }

  // Takes whole encoded records from the front of `batch` until it is empty or the memtable that the next one
  // needs is full and its twin still being written. kCorruption for bytes that are no records of this
  // partition.
  struct Accepted {
    size_t bytes = 0;
    uint64_t records = 0;
  };
  Result<Accepted> accept(Bytes batch);

  // Ends the open epoch and opens the next one. `values`: what this rank has written to its value log in the
  // epoch that ends. Requires that all records were accepted and that the epoch before, if any, is durable.
  void end_epoch(EpochNumber next_epoch, uint64_t next_epoch_id, const run::ValueRange& values = {});
  // With sources: call when all batches of the last ended epoch have come. Its table can be made then.
  void make_table() {
    assert(table_ == Table::kWaits);
    table_ = Table::kDue;
  }
  // Whether the last ended epoch is durable.
  bool durable() const { return state_ == State::kDurable; }
  // What the open epoch has so far: records and their bytes, not the digest.
  RecordTally taken() const;
  // What was indexed in the last ended epoch.
  const RecordTally& tally() const { return closing_->tally; }
  ExtremaSummary extrema() const { return ExtremaSummary::of(partition(), closing_->extrema); }

  // What a way is doing: one thing at a time, in one task or several.
  enum class Work : uint8_t {
    kNone,
    kPack,     // compresses its full memtable; produces nothing yet
    kRun,      // makes its full memtable into a run
    kSegment,  // makes the sketches of its runs into a segment
    kExtrema,  // likewise their extrema
    kTable,    // makes the epoch's auxiliary table, in its own file
  };

  // A piece of CPU work: fills one output buffer from a run or a segment.
  struct Task {
    Work kind = Work::kNone;
    uint32_t way = 0;
    uint32_t buffer = 0;
    EpochNumber epoch = {};
    // The one that `kind` names; the others are nullptr.
    RunPacker* packer = nullptr;
    run::RunOutput* run = nullptr;
    run::SegmentBuilder* segment = nullptr;
    run::ExtremaSegmentBuilder* extrema_segment = nullptr;
    SourceHome* sources = nullptr;
    run::ExtremaGroup* extrema = nullptr;  // of kRun: takes the run's blocks, if fields are indexed
    MutableBytes out;
    size_t produced = 0;
    Nanos began = 0;  // the owner's
    void work();      // touches only what the task owns
    bool done() const;
  };
  bool has_task(uint32_t way) const { return way_ready(ways_[way]); }
  // None: nothing to do for this way now, or no output buffer free. At most one task per way is out at a
  // time.
  std::optional<Task> next_task(uint32_t way);
  void finish_task(const Task& task);

  bool has_io() const { return !io_queue_.empty() && failure_.ok(); }
  std::optional<IoRequest> next_io();
  void finish_io(const IoRequest& request, const Status& status);

  const Status& failure() const { return failure_; }
  EpochNumber open_epoch() const { return open_->number; }
  BlockNumber data_end_block() const { return data_end_block_; }

 private:
  // State of the closing epoch. Each one begins when what it relies on is complete (advance).
  enum class State : uint8_t {
    kNone,       // no epoch has been ended yet
    kSealed,     // its records are in memtables and become runs
    kSyncData,   // its runs are written, the data log is being synced
    kIndexing,   // its data are durable, segments are being made and written
    kFooter,     // its footer is being written, after all segments
    kSyncIndex,  // all is written, the index log is being synced
    kDurable,
  };

  // The closing epoch's auxiliary table. The first way's worker makes it.
  enum class Table : uint8_t { kNone, kWaits, kDue, kRuns, kDone };

  // What one way has of an epoch, until it is in the index log.
  struct Share {
    std::vector<run::RunSketch> sketches;        // their memory is the way's
    std::unique_ptr<run::ExtremaGroup> extrema;  // none if no fields are indexed
    bool has_segment = false;                    // in the index log: each way needs one, also without records
    bool written() const { return has_segment && sketches.empty() && (!extrema || extrema->empty()); }
  };

  struct Epoch {
    EpochNumber number = {};
    uint64_t id = 0;
    BlockNumber first_block = {};
    BlockNumber end_block = {};
    uint32_t runs = 0;
    uint32_t writes_out = 0;                     // queued or running
    RecordTally taken = {};                      // in memtables, counted when they fill
    RecordTally tally = {};                      // in runs
    std::vector<run::FieldTotals> extrema = {};  // of the groups that are written
    run::ValueRange values = {};
    std::vector<Share> shares = {};  // by way
  };

  // Invariants: `full` or `spare` is there, never both, but for a moment within a call. Work on a memtable is
  // on `full`. `full` or `ordered` is there, or neither.
  struct Way {
    std::unique_ptr<run::Memtable> filling;
    Epoch* filling_of = nullptr;  // open_; closing_ until its last records have found a place in `full`
    std::unique_ptr<run::Memtable> full;           // being made into a run, or waiting for it
    std::unique_ptr<run::OrderedRecords> ordered;  // likewise
    Epoch* full_of = nullptr;                      // of one of the two
    std::unique_ptr<run::Memtable> spare;          // empty, ready to be filled
    uint16_t number = 0;
    Work work = Work::kNone;
    bool task_out = false;
    Epoch* work_of = nullptr;             // whose run or segment is being made
    std::unique_ptr<RunPacker> packer;    // none without compression
    std::unique_ptr<run::RunOutput> run;  // of kRun; that of the others likewise
    std::unique_ptr<run::SegmentBuilder> segment;
    std::unique_ptr<run::ExtremaSegmentBuilder> extrema_segment;
    std::unique_ptr<run::RunScratch> scratch;
    std::unique_ptr<run::SketchArena> sketch_memory;  // of both epochs
    uint64_t log_offset = 0;                          // where the next output of `work` goes
    uint64_t segment_offset = 0;                      // where the open segment begins

    bool has_work() const { return full || ordered; }
    run::RunShape shape() const { return full ? full->shape() : ordered->shape(); }  // of what is to be a run
  };

  explicit Partition(const PartitionParams& params);
  static Result<Way> make_way(const PartitionParams& params, uint16_t number);

  PartitionNumber partition() const { return PartitionNumber(params_.rank); }
  bool closing() const { return state_ != State::kNone && state_ != State::kDurable; }
  bool is_closing(const Epoch* epoch) const { return epoch == closing_ && closing(); }
  // The open or the closing epoch.
  Epoch& epoch_numbered(EpochNumber number) {
    return state_ != State::kNone && number == closing_->number ? *closing_ : *open_;
  }
  void open_next(EpochNumber number, uint64_t id);
  bool rotate(Way& way);
  void begin_work(Way& way);
  bool way_ready(const Way& way) const;
  bool closing_runs_placed() const;
  bool sketch_fits(const Way& way) const;
  bool extrema_fit(const Way& way) const;
  bool can_start_run(const Way& way) const;
  size_t run_sketch_bytes(const Way& way) const;
  uint32_t run_blocks_max(const Way& way) const;
  void start_run(Way& way);
  void place_run(Way& way);
  Epoch* segment_due(const Way& way) const;
  Epoch* extrema_due(const Way& way) const;
  run::SegmentParams segment_params(const Way& way) const;
  void start_segment(Way& way, Epoch* epoch);
  void start_extrema(Way& way, Epoch* epoch);
  void finish_run(Way& way);
  void finish_segment(Way& way);
  void finish_extrema(Way& way);
  void add_to_footer(const run::SegmentRecord& record);
  void write_footer();
  void queue_write(const IoRequest& request);
  void request_sync(LogFile file);
  void advance();
  bool table_due(const Way& way) const { return table_ == Table::kDue && way.number == 0; }
  void finish_table();
  bool runs_done() const;
  bool segments_done() const;

  const PartitionParams params_;
  run::FooterBuilder footer_builder_;
  std::vector<Way> ways_;
  Buffer output_memory_;
  std::vector<uint32_t> free_output_;
  std::deque<IoRequest> io_queue_;
  State state_ = State::kNone;
  Table table_ = Table::kNone;
  // Two epochs at most are alive. They change their roles when one is ended, and stay where they are.
  Epoch epochs_[2];
  Epoch* open_ = &epochs_[0];
  Epoch* closing_ = &epochs_[1];
  BlockNumber data_end_block_;
  uint64_t index_end_ = 0;
  Buffer footer_bytes_;  // being written
  Status failure_;
};

}  // namespace swale::imd
