// The inventory of a data log for repair: its whole runs, each block verified, and the amount of other bytes.
//
// Threads: free functions. Memory: 150 bytes a run, and one chunk.
// Errors: only those of the device; damage is counted and described.
// Skips holes of files.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/format.h"
#include "run/run_cursor.h"
#include "run/value_format.h"

namespace swale::imd {

struct FoundRun {
  run::RunHeader header{};
  BlockNumber first_block = {};
  uint64_t digest = 0;
  LargeTally large = {};  // its records that point into value logs

  BlockNumber end_block() const { return first_block + header.blocks; }
};

struct DataInventory {
  std::vector<FoundRun> runs;  // whole ones, by place
  uint64_t blocks = 0;         // of the file
  BlockNumber end_block = {};  // after the last block that is not all zeros
  uint64_t torn_runs = 0;      // runs with a header that are not whole
  Status first_damage;         // of a run that is not whole
};

// `progress(bytes)` may be empty: chunk by chunk, how much was read.
using InventoryProgressFn = std::function<void(uint64_t bytes)>;
Result<DataInventory> take_inventory(io::File& data, PartitionNumber partition,
                                     const InventoryProgressFn& progress);

// What a value log has of one epoch: from the first to the last value whose head is whole; how many are
// whole. Of value pages: from the first whole page to the last; how many values begin in whole pages, without
// the last one before each gap.
struct FoundValues {
  EpochNumber epoch = {};
  uint64_t epoch_id = 0;
  run::ValueRange range;
};
// In the order of their places; reads everything. After a damaged head the next one that is whole is looked
// for, byte by byte.
Result<std::vector<FoundValues>> take_value_inventory(io::File& values, PartitionNumber writer);
Result<std::vector<FoundValues>> take_page_inventory(io::File& pages, PartitionNumber writer);

// Every record of a whole run, and its blocks, chunk by chunk.
using RunRecordFn = std::function<void(const run::ScannedRecord&)>;
using RunBlocksFn = std::function<void(Bytes)>;
Status walk_run(io::File& data, const FoundRun& found, const RunRecordFn& record, const RunBlocksFn& blocks);

// Copies a run of `from` to `first_block` of `to`: the same but for the numbers of its blocks.
Status copy_run(io::File& from, const FoundRun& found, io::File& to, BlockNumber first_block);

// Bytes first..first + bytes - 1 of `from`, to the same place of `to`.
Status copy_file_bytes(io::File& from, uint64_t first, uint64_t bytes, io::File& to);

}  // namespace swale::imd
