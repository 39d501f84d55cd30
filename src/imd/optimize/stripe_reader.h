// StripeReader: reads epochs of a massive directory by ranges of hashes, one after the other, each record
// once.
//
// The runs of a job whose keys are placed by hash are in the order of these hashes: each is a stream that
// stays where the last stripe ended. Other runs (a partitioner of the user's, the lossy format, with several
// ranks) have keys of all hashes in another order: they are read again for each stripe.
//
// Threads: one at a time. Memory: one chunk, and for each run what of its last chunk lies beyond the stripe.
// Errors: kCorruption that names file and offset; nothing is passed over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "run/run_cursor.h"

namespace swale::imd {

struct StripeRecord {
  uint32_t index = 0;  // of the epoch among those that are read
  Hash hash = 0;       // of the key
  Bytes row;           // the key, then what the record has of the value
  uint32_t key_bytes = 0;
  bool large = false;  // the value lies elsewhere
};

class StripeReader {
 public:
  using RecordFn = std::function<void(const StripeRecord&)>;

  // The objects referred to must outlive the reader. `memory_bytes`: about what it may take.
  static Result<std::unique_ptr<StripeReader>> open(const ReaderFiles& files, const Manifest& manifest,
                                                    PartitionCache& partitions,
                                                    std::span<const EpochNumber> epochs, size_t memory_bytes);

  // The records whose hashes lie in first..last: by epoch, partition and run, in a run as they were appended.
  // Stripes ascend: each begins after the last one.
  Status read(Hash first, Hash last, const RecordFn& fn);
  // Call after the last stripe: that all runs came to their ends.
  Status finish() const;

 private:
  struct Ahead {
    StripeRecord record;  // without its row
    size_t at = 0;        // of the row in the stream's bytes
    uint32_t row_bytes = 0;
  };
  struct Stream {
    uint32_t index = 0;
    const EpochEntry* epoch = nullptr;
    std::shared_ptr<const PartitionLogs> logs;
    Reader::ScanPiece piece;
    bool by_hash = true;
    Hash lowest = 0;   // of the hashes that the partition may have, by hash
    Hash reached = 0;  // the highest hash that was read
    uint64_t done_blocks = 0;
    std::unique_ptr<run::RunCursor> cursor;
    std::vector<Ahead> ahead;
    std::string ahead_bytes;

    bool at_end() const { return done_blocks == piece.blocks; }
  };

  StripeReader(const ReaderFiles& files) : files_(files) {}
  Status read_stream(Stream& stream, Hash first, Hash last, const RecordFn& fn);
  static void give_ahead(Stream& stream, Hash last, const RecordFn& fn);
  Status read_chunk(Stream& stream, const run::RunCursor::RecordFn& fn);
  static void rewind(Stream& stream);

  const ReaderFiles& files_;
  std::vector<Stream> streams_;
  std::vector<char> chunk_;
};

}  // namespace swale::imd
