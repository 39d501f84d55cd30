// Shard: the part of the segment index that one server owns. Puts of extents and runs go in; lookups of byte
// ranges come out. Everything acknowledged survives a crash. How it works: docs/design/metadata-store.md.
//
// The shard is passive: it has no thread and no clock. Puts join an open group. The rim asks for a commit
// (next_commit), runs it on any thread (Work::run: one write and one sync of the write-ahead log), and hands
// it back (finish). From then on the group is durable and visible. Flushes and merges are Work too
// (next_background). At most one commit and one background work are under way at a time; both may run while
// the shard takes puts and lookups.
//
//   ticket = shard.put(request);  ...  work = shard.next_commit(); work->run();
//                                      shard.finish(std::move(work));
//   if (ticket <= shard.durable_group()) answer the client
//
// Threads: all calls by one thread at a time, but for Work::run, which touches nothing that the shard
// changes.
// Invariants: (1) lookups see durable groups only, all of each; (2) of overlapping puts the one with the
// higher sequence
//   wins, byte by byte; (3) after a failed sync of the log, or a write that failed for another reason than a
//   full disk, the shard is read-only for good: no later group can become durable, and every put answers the
//   first failure.
// A full disk: the record of a group that finds no space is taken back. finish() answers kNoSpace, health()
// stays OK, and
//   every group after durable_group() is void: answer its clients with that failure. Their retries count as
//   new requests. A checkpoint that finds no space is tried again later; while the buffers are full, each put
//   answers kNoSpace and causes one more attempt. So the shard goes on when space returns.
// Errors: kInvalidArgument (nothing was done), kNotFound (the file was removed), kBusy (accepts() is false:
// finish background work first), kNoSpace,
//   kCorruption (a block or log is damaged; never a wrong extent), kResourceExhausted, or the failure that
//   made the shard read-only. A call that runs out of memory has done nothing.
// Limits: memory as ShardOptions says; ends of puts at or below kOffsetEnd.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "meta/index/lattice.h"
#include "meta/index/types.h"
#include "store/record_log.h"

namespace swale::meta {

// Holes are extents of this log: what a truncate leaves. Nobody may put one.
inline constexpr LogId kHoleLog = ~LogId{0};

// Which codec blocks use; kAuto measures. DO NOT CHANGE THESE VALUES: they are on disk.
// The paper's LZ77 and others that no option reached are measured in bench/meta/column_codecs.h.
enum class BlockCodec : uint8_t {
  kFrame = 0,      // frame of reference with slope and gcd, bit-packed: rows are addressable
  kDeltaZstd = 3,  // second differences as varints, zstd
  kAuto = 255,
};

class LoggedTable;

struct ShardOptions {
  std::string directory;         // exists; several shards may share it
  uint32_t shard = 0;            // stands in the names of its files
  LoggedTable* table = nullptr;  // beside the index; outlives the shard. None: add_record is not called

  // 40 bytes each; two such buffers exist while one is being compressed
  size_t write_buffer_entries = 256 * 1024;
  uint64_t compression_buffer_bytes = 24 << 20;
  uint64_t cache_bytes = 64 << 20;      // blocks of sorted files
  uint64_t log_bytes_max = 256 << 20;   // a checkpoint begins beyond it
  uint64_t group_bytes_max = 16 << 20;  // what would make the open group longer answers kBusy
  size_t runs_max = 1 << 20;            // beyond it, runs are stored as extents
  size_t files_max = 16 << 20;
  unsigned run_blocks_min = 8;           // a run of fewer blocks is stored as extents
  unsigned layers_max = 16;              // how many overlapping layers of runs a lookup may meet in a file
  uint64_t expand_blocks_max = 1 << 20;  // a longer run is never stored as extents
  bool keep_runs = true;                 // false: every run is stored as extents (for comparison)
  BlockCodec codec = BlockCodec::kAuto;
  // When so many relocations have come, a checkpoint rewrites all places and retires their rules. 0: never.
  size_t relocations_retire = 1024;
  unsigned locality_percent = 80;       // the paper's alpha: blocks of a cluster that must be wanted
  bool cluster_reads = true;            // false: one read a block (for comparison)
  uint64_t table_bytes_min = 4 * kMiB;  // fewer bytes of the table's records are no reason for a checkpoint
  bool sync_log = true;                 // false: a group counts as durable when written (for comparison)
};

// A request's name, so that a retry is applied once. Numbers of a client ascend from 1; a retry may arrive up
// to kRetryWindow numbers late. Client 0: no deduplication.
struct RequestKey {
  uint64_t client = 0;
  uint64_t number = 0;
};
inline constexpr uint64_t kRetryWindow = 64;

// One file's part of a put, as RunDetector gives it: run i comes after the first run_at[i] extents (run_at
// empty: all runs come after all extents). Later ones win.
struct Put {
  FileId file;
  std::span<const Extent> extents;
  std::span<const Run> runs;  // valid() each
  std::span<const uint64_t> run_at;
};

// Bytes [begin, end) of `from.log` now stand at `to` and after it. Applies to what was put before.
struct Relocation {
  LogId from = 0;
  uint64_t begin = 0;
  uint64_t end = ~uint64_t{0};
  Place to;  // where address `begin` is now
};

struct FileSize {
  bool known = false;  // something was put into the file, or it was truncated
  // of the last truncate; merge answers of several servers by the larger (generation, size)
  uint64_t generation = 0;
  uint64_t size = 0;
};

struct Range {
  FileId file;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The answers to a batch of ranges, in the order of the ranges. Reuse one object: it keeps its memory.
struct Found {
  std::vector<Extent> extents;  // each range's: ascending, disjoint, clipped to the range; holes are left out
  std::vector<size_t> ends;     // ends[i]: where those of range i end in `extents`
  // Ranges from here on were not answered, because the limit of pieces was reached, and the last answered one
  // may be cut: go on at `resume`.
  size_t answered = 0;
  std::optional<uint64_t> resume;  // in range `answered`: bytes before this offset are answered
};

// Which bytes of a file a server answers for; scans and tables of runs are filtered by it. None: all.
class Ownership {
 public:
  virtual ~Ownership() = default;
  // The first owned range [first, second) that ends after `from`; empty (first == second) if none.
  virtual std::pair<uint64_t, uint64_t> next_owned(const FileId& file, uint64_t from) const = 0;
};

// A table beside the index whose changes are records of the shard's log, and whose content its checkpoints
// keep: the file
// attributes. The table changes first, and its owner then hands the record to Shard::add_record.
class LoggedTable {
 public:
  virtual ~LoggedTable() = default;
  // Recovery. A record as the table has made it; kCorruption if it is none.
  virtual Status replay(Bytes record) = 0;
  // Records that make this table of an empty one.
  virtual void for_each_record(const std::function<void(Bytes)>& visit) const = 0;
  // Changes that may be taken back, oldest first: the first `count` of them are durable, or all are taken
  // back.
  virtual size_t changes() const = 0;
  virtual void keep(size_t count) noexcept = 0;
  virtual void undo() noexcept = 0;
};

struct ShardCounters {
  uint64_t puts = 0, extents = 0, runs = 0, runs_expanded = 0, duplicates = 0;
  uint64_t groups = 0, log_bytes = 0, log_syncs = 0;
  uint64_t flushes = 0, flushed_bytes = 0, merges = 0, merged_bytes = 0, blocks_merged = 0, blocks_copied = 0;
  uint64_t checkpoints = 0, checkpoint_bytes = 0;
  uint64_t rows_dropped = 0;                          // of removed files
  uint64_t groups_void = 0, background_failures = 0;  // for lack of space or memory
  uint64_t lookups = 0, lookup_pieces = 0, run_answers = 0;
  uint64_t ranges_scanned = 0;  // that scans have looked into
  uint64_t reads = 0, read_bytes = 0, blocks_wanted = 0, blocks_read = 0, cache_hits = 0;
};

// What the shard holds now.
struct ShardState {
  uint64_t sequence = 0;  // the next one
  uint64_t files = 0, runs = 0, run_layers_max = 0;
  uint64_t buffered_entries = 0, compressed_entries = 0, filed_entries = 0;
  uint64_t relocations = 0;  // rules that lookups still apply
  uint64_t removed_ranges = 0;
  uint64_t layers = 0;  // of irregular extents: buffers, trees and tables
  uint64_t log_bytes = 0, file_bytes = 0, snapshot_bytes = 0;
  uint64_t table_file_bytes = 0, table_tail_bytes = 0;  // of the table beside the index (table_records.h)
  uint64_t index_memory_bytes = 0;  // runs, files, indexes of blocks; without buffers and cache
  uint64_t buffer_memory_bytes = 0, cache_memory_bytes = 0;
};

struct RecoveryReport {
  uint64_t groups = 0, entries = 0, runs = 0;
  uint64_t records = 0;  // of the table beside the index, in its file, snapshot and logs
  uint64_t log_bytes = 0, torn_bytes = 0;
  std::string torn_log;  // whose end was torn; empty: none
};

enum class WorkKind { kCommit, kFlush, kMerge, kCheckpoint };

class Work {
 public:
  explicit Work(WorkKind kind) : kind_(kind) {}
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  WorkKind kind() const { return kind_; }
  // Once, by any thread. Does not throw: failures are kept for Shard::finish.
  virtual void run() noexcept = 0;

 private:
  const WorkKind kind_;
};

class Shard {
 public:
  // Claims the number of a job, reads what earlier jobs and crashes left, and begins a log. The device must
  // outlive the shard.
  static Result<std::unique_ptr<Shard>> open(io::Device& device, const ShardOptions& options,
                                             RecoveryReport* report = nullptr);
  virtual ~Shard() = default;

  // Each joins the open group and returns the group's number. A duplicate returns a group that is durable no
  // earlier than the original's. After a failure nothing of the request was done.
  virtual Result<uint64_t> put(RequestKey key, std::span<const Put> puts) = 0;
  // Drops bytes from `size` on and makes `size` the file's size, unless the file has seen `generation` or a
  // later one.
  virtual Result<uint64_t> truncate(RequestKey key, const FileId& file, uint64_t size,
                                    uint64_t generation) = 0;
  // The file's id names nothing from then on, for ever: what was put by it is dropped from memory and files
  // by and by, and every later call for it but another removal answers kNotFound.
  virtual Result<uint64_t> remove(RequestKey key, const FileId& file, uint64_t generation) = 0;
  virtual Result<uint64_t> relocate(RequestKey key, const Relocation& relocation) = 0;

  // A change of the table, which is durable with the group that is returned; of an empty record: with all
  // before it. What
  // throws std::bad_alloc has done nothing.
  virtual uint64_t add_record(Bytes record) = 0;
  // False: the open group is long enough, or a checkpoint waits for it: commit it before the next change.
  virtual bool accepts_records() const = 0;
  // Of the records that no file of the table has yet. Cheap.
  virtual uint64_t record_memory_bytes() const = 0;

  // The number in the names of this shard's files, above those of all earlier jobs.
  virtual uint32_t job() const = 0;
  virtual Status fence() const = 0;            // kAborted: a later job has opened the shard. Any thread
  virtual uint64_t open_group() const = 0;     // what the next put joins
  virtual uint64_t durable_group() const = 0;  // this and all before are durable and visible
  // The last group that has survived a power failure: of commits that sync later, durable_group() is only
  // written, which survives a killed process.
  virtual uint64_t synced_group() const = 0;
  virtual bool accepts() const = 0;   // false: finish background work before the next put
  virtual Status health() const = 0;  // OK, or why the shard is read-only

  // Null: nothing to do, one is under way, or there is no memory for it now. kLater: the next commit that
  // syncs makes it durable, too.
  virtual std::unique_ptr<Work> next_commit(store::AppendSync sync) = 0;
  std::unique_ptr<Work> next_commit() { return next_commit(store::AppendSync::kNow); }
  virtual std::unique_ptr<Work> next_background() = 0;
  // Background work is overdue: ask for it before the next commit.
  virtual bool background_first() const = 0;
  // No put has come for a while: from here on next_background gives out what is needed to bring what is in
  // buffers and trees into sorted files, and the buffers' memory is given back. False: there is nothing to
  // bring, or too little for what would be written anew.
  virtual bool settle() = 0;
  // The outcome of the work. After a failed commit with health() OK every group after durable_group() is
  // void.
  virtual Status finish(std::unique_ptr<Work> work) = 0;

  // On the caller's thread: commits the open group; the same, then flushes and merges everything into sorted
  // files and makes a checkpoint, after which the log is empty. Requires that no work is under way.
  virtual Status commit() = 0;
  virtual Status drain() = 0;
  // Before a close: gives back what removed files have left, if it is more than a little. Requires that no
  // work is under way.
  virtual Status tidy() { return {}; }

  // Many ranges at once: sorted inside, answered in their order.
  virtual Status lookup(std::span<const Range> ranges, size_t pieces_max, Found* out) = 0;
  // The bytes of the blocks of each query (its place is ignored), as runs. A query that meets regular runs of
  // its own shape costs O(1), whatever its count. Answers of one query do not overlap; they ascend by first
  // byte where they are extents. kResourceExhausted if there would be more than runs_max: ask for less. Also
  // if the queries have more than 2^20 blocks that must be looked up one by one. ends[i] (null: not asked
  // for): where the answers to query i end in *out.
  virtual Status lookup_runs(const FileId& file, std::span<const Run> queries, size_t runs_max,
                             std::vector<Run>* out, std::vector<size_t>* ends) = 0;
  virtual FileSize size(const FileId& file) const = 0;
  // The extents of a file from `from` on, in order, up to pieces_max of them. *next: where to go on;
  // kOffsetEnd: done. There may be none before *next. Ranges without a byte cost nothing, however many they
  // are.
  virtual Status scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
                      std::vector<Extent>* out, uint64_t* next) = 0;
  // The whole file as at most runs_max runs that do not overlap, for a sealed file's table.
  // kResourceExhausted if it needs more.
  virtual Status run_table(const FileId& file, size_t runs_max, const Ownership* ownership,
                           std::vector<Run>* out) = 0;
  // Files in ascending order of their ids, after `after`.
  virtual void list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const = 0;

  virtual const ShardCounters& counters() const = 0;
  virtual ShardState state() const = 0;
  // Whether all parts agree with one another, as they must between any two calls. For tests: looks at
  // everything.
  virtual bool consistent() const = 0;
  // Forgets cached blocks: the next lookups read from storage.
  virtual void drop_cache() = 0;
};

}  // namespace swale::meta
