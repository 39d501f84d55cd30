// Reader: answers queries on a massive directory; needs only its path. Any number of processes may read, also
// while a job is still writing: a Reader sees the epochs that were committed when it was opened or refreshed.
//
// A query reads the index footers of the partitions that are new to it, then one slice per epoch, then one
// block (or a few) per candidate, as soon as its slice has arrived. Depth, the number of reads on part-*
// files that wait for one another, is 3 cold, 2 once the footer is resident, one more if a slice overflows. A
// value of more than 16,384 bytes takes one more, a value of more than 256 KiB two; so does any value of 12
// bytes or more in a directory of the indirect format. In the lossy format the query first reads the
// auxiliary table of the key's home, one epoch after the other: two more (reader_tables.h). What the readers
// of this process have verified lately is not read again (read_cache.h): with the slices there, which `warm`
// reads, the depth is 1. Bytes in the page cache are read by one system call each (io/advised_queue.h).
// ReaderOptions::map allows a mapping of the logs instead, without system calls for these bytes. But if the
// device then fails to deliver a page that was resident, or another program cuts it off, the access raises
// SIGBUS (io/mapping.h): so a mapping is not the default. Every read verifies checksums. Wrong bytes are read
// once more: if they are right then, the query uses them and a warning says so; if not, the result is
// kCorruption with file and offset, never wrong data. kAborted: an epoch of this view was dropped, or the
// directory was replaced by a new one; refresh.
//
// Threads: several threads may make any call at once (footers are cached under a mutex).
// Limits: reads in flight per call as in ReaderOptions. Memory of a query beyond its result: at most 4 MiB of
// slices and 4 MiB of blocks (more only if one slice is longer), 12 bytes per key and epoch (at most 384 KiB
// at a time) and 96 per record that the index names in one chunk; one large value at a time (scan, get_many).
// Keeps the memory of 16 queries, at most 1 MiB each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/epoch_stats.h"
#include "imd/format/manifest.h"
#include "imd/format/partitioner.h"
#include "io/device.h"
#include "run/extrema_format.h"
#include "run/run_cursor.h"
#include "run/schema.h"

namespace swale::imd {

class OpeningAhead;
class ReadCache;
class ReaderView;
class StatsReader;
struct ReadCounters;
struct ReaderFiles;

struct ReaderOptions {
  enum class Map { kAuto, kNever };  // kAuto: logs on local file systems; may raise SIGBUS

  size_t reads_in_flight_max = 64;
  size_t scan_chunk_bytes = 4 * kMiB;
  Map map = Map::kNever;
  std::shared_ptr<ReadCache> cache = {};  // of verified slices and blocks; none: every query reads
};

struct Value {
  EpochNumber epoch = {};
  std::string bytes;
};

// One found value: its bytes, or the place of its bytes.
struct FoundValue {
  EpochNumber epoch = {};
  uint64_t epoch_id = 0;
  bool large = false;  // it lies in a value log
  uint64_t bytes = 0;  // its length
  std::string stored;  // the record's bytes: the value, or (large) its first bytes and a pointer
};

// `bytes_read` and `reads` count the requests of queries and scans to the part files, wherever the bytes
// were: device, page cache or mapping.
struct ReadStats {
  uint64_t bytes_read = 0;
  uint64_t reads = 0;
  uint64_t depth_max = 0;
  uint64_t queries = 0;
  uint64_t false_candidates = 0;
  uint64_t cache_hits = 0;  // slices, and blocks of a record, that the cache had
  uint64_t cache_misses = 0;
  uint64_t cache_bytes = 0;  // that the cache of the process holds now

  Counters counters() const;
};

// The result of Reader::top.
struct TopResult {
  struct Record {
    std::string key;
    std::string value;
    run::OrderKey number = 0;  // of the field, for run::number_of and run::text_of
  };
  run::FieldPlace field;
  std::vector<Record> records;  // the best first
  uint64_t nans = 0;            // records of the epoch whose field is NaN; never among the best
  uint64_t absent = 0;          // records whose value is too short; never among the best
  uint64_t blocks_read = 0;     // blocks that extrema named
  uint64_t partitions_scanned = 0;
  uint64_t bytes_read = 0;
  uint64_t reads = 0;
};

class Reader {
 public:
  static constexpr int64_t kAllEpochs = -1;

  static Result<std::unique_ptr<Reader>> open(io::Device& device, const std::string& directory,
                                              const ReaderOptions& options);
  // `ahead` is of the same device and directory: what has been fetched since it was made need not be waited
  // for.
  static Result<std::unique_ptr<Reader>> open(io::Device& device, const std::string& directory,
                                              const ReaderOptions& options,
                                              std::unique_ptr<OpeningAhead> ahead);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Makes newly committed epochs visible, and hides dropped ones. A running query keeps the view that it
  // began with. After a failure the Reader works as before.
  struct Refreshed {
    bool added = false;
    bool dropped = false;  // known epochs were dropped; other epochs may have their numbers now
  };
  Result<Refreshed> refresh();

  // A reader of the epochs that this one sees now, for work that goes on while this one is refreshed. It
  // shares files and footers with this one, which must outlive it. Do not refresh it.
  std::unique_ptr<Reader> pinned() const;

  // Valid until the next refresh.
  const Manifest& manifest() const;
  // Use when another thread may call refresh concurrently.
  std::shared_ptr<const Manifest> manifest_now() const;
  const std::string& directory() const { return directory_; }
  // For parts of the reader and swale verify: how to read the directory's files. Valid as long as the reader.
  ReaderFiles files() const;

  // The key's values in one epoch or in all, ordered by epoch and within it by writer and append order.
  // kNotFound if there is none; kInvalidArgument for an epoch that does not exist.
  Result<std::vector<Value>> get(Bytes key, int64_t epoch);

  // The same without reading values that lie in value logs.
  Result<std::vector<FoundValue>> find(Bytes key, int64_t epoch);
  // Bytes first..first + out.size() - 1 of a value that `find` found for this key; kInvalidArgument beyond
  // its end; kAborted if its epoch was dropped, and the bytes are in a value log.
  Status read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out);

  // `fn(key index, epoch, value)` for every value of every key, in no particular order; false stops the walk.
  // Returns the number of keys that had a value.
  using BatchFn = std::function<bool(size_t key_index, EpochNumber epoch, Bytes value)>;
  Result<size_t> get_many(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn);

  // Every record of one epoch or of all, in storage order; false stops the walk.
  using RecordFn = std::function<bool(EpochNumber epoch, Bytes key, Bytes value)>;
  Status scan(int64_t epoch, const RecordFn& fn);

  // Pieces of a scan for threads that take one after the other: whole runs of one epoch in one partition, at
  // least `blocks_min` blocks each (the last one may be shorter). Walked in order, partition after partition,
  // they give the same records as the scan. Reads the header of every run.
  struct ScanPiece {
    EpochNumber epoch = {};
    PartitionNumber partition = {};
    BlockNumber first_block = {};  // in the data log
    uint64_t blocks = 0;
    uint64_t records = 0;
  };
  // With `damaged`, damage and failures of storage do not end the walk as long as a later part can be read.
  // `damaged` is called for each skipped place, with the number of records found missing since the last call
  // (the sum over all calls is the number of missing records).
  using DamageFn = std::function<void(const Status& cause, uint64_t records)>;
  Result<std::vector<ScanPiece>> scan_pieces(EpochNumber epoch, PartitionNumber partition,
                                             uint64_t blocks_min, const DamageFn& damaged = {});
  Status scan_piece(const ScanPiece& piece, const RecordFn& fn, const DamageFn& damaged = {});
  // The same, and records of equal lengths that lie side by side go to `rows`, a block at a time: for
  // callers to which a call for each record is too much. `fn` gets the others. The order is the same.
  using RowsFn = run::RunCursor::RowsFn;
  Status scan_piece(const ScanPiece& piece, const RecordFn& fn, const RowsFn& rows);

  // Part `part` of `parts` (1 to kScanPartsMax) of one epoch or of all: whole runs. Every record is in
  // exactly one part; which one depends only on the epoch and `parts`, so several processes may share a scan.
  // Each epoch is divided separately, by partitions and within them by blocks. Parts are about equal if
  // partitions are equal and have several runs per part; some may be empty. With as many parts as partitions,
  // part p is partition p. Opens only the part's partitions; reads the run headers of two at most.
  static constexpr uint32_t kScanPartsMax = uint32_t{1} << 20;
  Status scan_part(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn);

  // The distinct keys of one epoch, each once, in storage order; false stops the walk. Reads the epoch as
  // scan does, and needs memory for the keys of one partition, in the lossy format for those of the epoch.
  using KeyFn = std::function<bool(Bytes key)>;
  Status keys(int64_t epoch, const KeyFn& fn);

  // min(n, distinct keys) distinct keys of one epoch, drawn at random, the same for the same seed; in random
  // order; false stops the walk. All keys are equally likely, however many records they have. Reads about 10
  // KB per key, or the epoch if that is less. docs/design/reader.md says exactly what is drawn.
  static constexpr size_t kSampleMax = size_t{1} << 20;
  Status sample(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn);

  // The k records of one epoch with the largest or the smallest numbers in a field, the best first; equal
  // numbers in the order of their keys' bytes, then as appended. Ties with the k-th record are broken in an
  // unspecified but repeatable way. Fewer than k if there are no more. A field of the schema without extrema
  // is found by a scan (partitions_scanned). kInvalidArgument for a field that the schema has not.
  static constexpr size_t kTopMax = size_t{1} << 20;
  Result<TopResult> top(int64_t epoch, std::string_view field, size_t k, run::Extreme which);

  // Reads the slices of these epochs (kAllEpochs: all) into the cache, first those that come first, until one
  // does not fit; displaces nothing. Returns how many bytes of the cache they take. A query of one of these
  // epochs then reads only the blocks of its records. kInvalidArgument without a cache.
  Result<uint64_t> warm(std::span<const int64_t> epochs);

  // The number of records in one epoch or in all, from the manifest; reads nothing.
  Result<uint64_t> count(int64_t epoch) const;

  // What the epoch cost its writers (stats_log.h). kNotFound if nothing was kept.
  Result<EpochStats> epoch_stats(int64_t epoch);

  // Documents that users gave (imd/format/attributes.h), "{}" if there is none: the directory's as of an
  // epoch, or (kAllEpochs) as of the last one, and an epoch's own. Read from storage by each call.
  Result<std::string> directory_attributes(int64_t epoch = kAllEpochs) const;
  Result<std::string> epoch_attributes(int64_t epoch) const;

  // Queries on epochs of jobs with a partitioner of this name ask one partition instead of all.
  Status set_partitioner(const Partitioner& partitioner);

  ReadStats stats() const;

 private:
  Reader(io::Device& device, std::string directory, const ReaderOptions& options);

  std::shared_ptr<ReaderView> view() const;
  std::shared_ptr<StatsReader> statistics(uint32_t job);

  io::Device& device_;
  const std::string directory_;
  const ReaderOptions options_;
  const std::unique_ptr<ReadCounters> counters_;
  Partitioners partitioners_;
  Mutex refreshing_;     // one at a time; taken first
  mutable Mutex mutex_;  // held for a moment only
  std::shared_ptr<ReaderView> view_ GUARDED_BY(mutex_);
  // By the number of the job that wrote the epochs.
  std::map<uint32_t, std::shared_ptr<StatsReader>> stats_ GUARDED_BY(mutex_);
  std::unique_ptr<OpeningAhead> ahead_;
};

}  // namespace swale::imd
