// RunCursor: walks whole runs of the data log and yields every record, for scan, verify, dump and repair. A
// passive parser: the owner reads blocks from the first block of a run onwards, in chunks of any number of
// blocks, and feeds them; the cursor keeps only the record that spans a chunk's end.
//
// Threads: one at a time.
// Errors: kCorruption that names file and offset. After a failure of feed, next_block() is the block at which
// it was
//   found, always one of those that were fed. Then make a new cursor and feed it from a later run (runs start
//   where decode_run_header succeeds). Exceptions: if the block next_block() fails verify_block, none of its
//   records was yielded, and an intact copy of it may be fed; and pass_block() skips it, whatever is wrong
//   with it.
// Limits: memory for one record, 16 KiB.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/block.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::run {

// A record and its place. `key` and `value` are valid during the call.
struct ScannedRecord {
  const RunHeader* run;
  Bytes key;
  Bytes value;                 // of a value that lies elsewhere what stands in its place
  uint32_t ordinal;            // in its run
  BlockNumber block = {};      // in which it starts
  uint32_t row;                // uniform: row in the block
  BlockNumber end_block = {};  // in which its last byte lies
  bool large;                  // the value lies elsewhere: in a value log or in value pages

  // What the record has of its value.
  Bytes fields() const { return large ? value.substr(0, value.size() - pointer_bytes(run->values)) : value; }

  uint64_t digest() const {
    return swale::record_digest({key.data(), key.size() + value.size()}, key.size());
  }

  // As one of a variable run.
  size_t encoded_bytes() const {
    if (!large || run->values == ValueRule::kPaged) return encoded_record_bytes(key.size(), value.size());
    return varint_bytes(key.size()) + varint_bytes(kValueBytesMax + value.size()) + key.size() + value.size();
  }

  // Whether the index, asked for the key's hash, means this very record.
  bool is(const Candidate& candidate) const {
    if (candidate.variable() != is_stream(run->kind)) return false;
    if (candidate.packed != (run->kind == RunKind::kPacked)) return false;
    if (candidate.any_slot()) return candidate.block == block;
    if (candidate.variable()) {
      return candidate.slot == ordinal && block >= candidate.block &&
             block - candidate.block < candidate.block_count;
    }
    return candidate.block == block && candidate.slot == row;
  }
};

// Rows of one block of a uniform run, side by side. Each is a key and a value, and no value lies elsewhere.
struct UniformRows {
  const char* rows;
  uint32_t key_bytes;
  uint32_t value_bytes;
  uint32_t count;

  uint32_t row_bytes() const { return key_bytes + value_bytes; }
};

class RunCursor {
 public:
  // Returns false to stop the walk.
  using RecordFn = std::function<bool(const ScannedRecord&)>;
  using RowsFn = std::function<bool(const UniformRows&)>;

  // `first_block`: the first fed block's number in the data log. If `epoch_id` is given, runs of other epochs
  // fail.
  RunCursor(PartitionNumber partition, BlockNumber first_block, std::string path,
            std::optional<uint64_t> epoch_id = {});

  // From now on the rows of uniform runs go to `fn`, a block at a time, instead of feed's function. It
  // outlives the cursor.
  void take_rows(const RowsFn* fn) { rows_fn_ = fn; }

  // `blocks`: the next whole blocks. Yields the records that they complete.
  Status feed(Bytes blocks, const RecordFn& fn);

  // Skips the damaged block next_block() and the records that reach into it; then feed the block after it.
  // False: the block begins a run; its header is lost, so the following blocks cannot be parsed.
  bool pass_block();

  // No more blocks: kCorruption if a run is cut off.
  Status finish() const;

  bool stopped() const { return stopped_; }
  bool between_runs() const { return next_block_ == run_end_block_; }
  BlockNumber next_block() const { return next_block_; }
  // The first block of the current run, or of the last finished one.
  BlockNumber run_block() const { return run_end_block_ - run_.blocks; }
  uint64_t runs() const { return runs_; }          // finished
  uint64_t records() const { return records_; }    // yielded
  uint64_t left_out() const { return left_out_; }  // records of finished runs that skipped blocks had

 private:
  Status feed_block(Bytes block, const RecordFn& fn);
  Status begin_run(Bytes block);
  Status uniform_rows(Bytes block, const BlockTrailer& trailer, const RecordFn& fn);
  Status stream_records(Bytes block, const BlockTrailer& trailer, const RecordFn& fn);
  Status end_run();
  void end_torn_run();
  void yield(const RecordView& record, BlockNumber block, uint32_t row, BlockNumber end_block,
             const RecordFn& fn);
  Status malformed(BlockNumber block, std::string_view problem) const;

  const PartitionNumber partition_;
  const std::string path_;
  const std::optional<uint64_t> epoch_id_;
  const RowsFn* rows_fn_ = nullptr;
  BlockNumber next_block_;
  BlockNumber run_end_block_;
  RunHeader run_{};
  uint32_t seed_ = 0;
  uint32_t ordinal_ = 0;          // of the next record
  std::vector<char> unfinished_;  // variable, packed: front of a record that spans blocks
  BlockNumber unfinished_block_;  // where it started
  std::vector<char> piece_;       // packed: of the current block
  uint64_t data_bytes_ = 0;
  uint64_t runs_ = 0;
  uint64_t records_ = 0;
  bool stopped_ = false;
  // State of the current run:
  uint32_t yielded_ = 0;
  bool torn_ = false;    // a block was skipped
  bool resync_ = false;  // the next record that starts in a block is the next one known
  uint64_t left_out_ = 0;
};

}  // namespace swale::run
