// StripeReader: reads epochs of a massive directory by ranges of hashes, one after the other, each record
// once.
//
// The runs of a job whose keys are placed by hash are in the order of these hashes: each is a stream that
// stays where the last stripe ended. The chunk after the one in use is read meanwhile (ChunkReads), past the
// page cache where the file system can; its blocks are verified by the stripe that needs them, in whose cache
// they then are. Other runs (a partitioner of the user's, the lossy format, with
// several ranks) have keys of all hashes in another order: they are read again for each stripe. Epochs
// that no log has are read from the clusters that have them: their runs are streams of series, which are cut
// into records.
//
// Of a part of all hashes (`range`, a rank's) only those blocks of hashed runs are read that may have them,
// and a few more, where a binary search looks for the first.
// Threads: one at a time; stripes that were read belong to their owner, who gives them back by another read.
// Memory: two or three chunks for each run, and those of stripes.
// Errors: kCorruption that names file and offset; nothing is passed over.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/format/series_values.h"
#include "imd/optimize/chunk_reads.h"
#include "imd/optimize/freed_source.h"
#include "imd/optimize/stripe.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "run/run_cursor.h"

namespace swale::imd {

class StripeReader {
 public:
  // Of a chunk, which holds any record.
  static constexpr size_t kChunkBytesMin = 32 * kKiB;

  // The objects referred to must outlive the reader. `memory_bytes`: about what chunks may take.
  // `reads_in_flight`: at most; 1: nothing is read ahead, and reads are spread evenly. Stripes must lie in
  // `range`.
  static Result<std::unique_ptr<StripeReader>> open(const ReaderFiles& files, const Manifest& manifest,
                                                    PartitionCache& partitions,
                                                    std::span<const EpochNumber> epochs,
                                                    std::span<const FreedSource> sources, size_t memory_bytes,
                                                    size_t reads_in_flight, const HashRange& range = {});

  // The records whose hashes lie in stripe->first..last. Stripes ascend: each begins after the last one. What
  // the stripe had before is forgotten.
  Status read(Stripe* stripe);
  // Call after the last stripe: that all runs came to their ends.
  Status finish() const;
  // Whether each run is read once.
  bool by_hash() const;
  // Whether the epoch's runs are in the order of hashes.
  static bool in_hash_order(const Manifest& manifest, const EpochEntry& epoch);

 private:
  struct Stream {
    uint32_t index = 0;
    size_t place = 0;  // among all streams
    const EpochEntry* epoch = nullptr;
    std::shared_ptr<const PartitionLogs> logs;
    Reader::ScanPiece piece;
    bool by_hash = true;
    Hash lowest = 0;             // of the hashes that the partition may have, by hash
    Hash reached = 0;            // the highest hash that was read
    uint64_t done_blocks = 0;    // that were read
    bool asked = false;          // for its first chunk
    StripeChunk chunk = {};      // that `fresh` lies in
    Bytes fresh = {};            // blocks that were read and are not verified yet
    StripeChunk coming = {};     // the next blocks are read into it
    ChunkReads::Read read = {};  // that does so
    std::unique_ptr<run::RunCursor> cursor;
    const FreedSource* source = nullptr;  // of series
    std::unique_ptr<SeriesValues> values = {};
    // Not given yet, or not all of it. All records of a run are uniform rows, or all are copied.
    std::deque<StripePart> ahead;
    std::deque<StripeChunk> memory;  // of these, in their order

    bool all_read() const { return done_blocks == piece.blocks; }
    bool at_end() const { return all_read() && fresh.empty(); }
    BlockNumber next_block() const { return piece.first_block + done_blocks; }
  };
  // Rows that are copied: from the front of a chunk what describes them, from its back their bytes.
  struct Copies {
    StripeRow* rows = nullptr;
    uint32_t count = 0;
    char* bytes = nullptr;
  };
  struct Feeding {
    Stream& stream;
    Stripe* stripe;
    Copies copies = {};
    bool keeps_blocks = false;
    Status status = {};
  };
  StripeReader(const ReaderFiles& files, bool ahead, const HashRange& range)
      : files_(files), ahead_(ahead), range_(range) {}
  Status add_epoch(const Manifest& manifest, PartitionCache& partitions, const EpochEntry& epoch,
                   uint32_t index);
  // Whether a partition may have hashes of the range.
  bool wants(PartitionNumber partition, uint32_t ranks) const {
    const HashRange its = HashRange::of(partition.value(), ranks);
    return its.last >= range_.first && its.first <= range_.last;
  }
  Status seek(Stream& stream);
  Result<bool> is_before_range(const Stream& stream, uint64_t block, MutableBytes bytes) const;
  Status read_block(const Stream& stream, uint64_t block, MutableBytes bytes) const;
  static void rewind(Stream& stream);
  static bool needs_more(const Stream& stream, const Stripe& stripe);
  static void give(Stream& stream, Stripe* stripe);
  void ask(Stream& stream);
  uint64_t first_blocks(const Stream& stream) const;
  Status take_chunk(Stream& stream, Stripe* stripe);
  Status take_fresh(Stream& stream, Stripe* stripe);
  bool take_uniform(Feeding& to, const run::UniformRows& uniform) const;
  bool take_record(Feeding& to, const run::ScannedRecord& record);
  bool take_series(Feeding& to, const run::ScannedRecord& series);
  Status add_source(const FreedSource& source);
  // A record whose key and value need not lie side by side.
  void copy_row(Feeding& to, Hash hash, uint32_t index, Bytes key, Bytes value, bool large);
  void flush(Feeding& to) const;
  static Status reach(Stream& stream, Hash hash);
  StripeChunk new_chunk();
  void spare(StripeChunk chunk);
  void take_back(Stripe* stripe);

  const ReaderFiles& files_;
  const bool ahead_;
  const HashRange range_;
  std::deque<Stream> streams_;  // reads do not move
  size_t chunk_bytes_ = 0;
  std::vector<StripeChunk> spare_;
  std::unique_ptr<ChunkReads> reads_;  // ends before the memory that it reads into
};

}  // namespace swale::imd
