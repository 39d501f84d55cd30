// Walks all records of one epoch in one partition, in storage order, chunk by chunk. The caller reads values
// that lie in value logs.
// Threads: a free function. Memory: one chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "run/run_cursor.h"

namespace swale::imd {

// False stops the walk.
using ScanFn = std::function<bool(const run::ScannedRecord&)>;

// Sets `*stopped` if `fn` returned false. kCorruption also if the number of records differs from the index's.
Status scan_epoch(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                  const ScanFn& fn, bool* stopped);

// The same for a piece from pieces_of. With `damaged`, both skip blocks that are damaged or cannot be read;
// if the header of a run is lost, pieces_of searches for the next run. With `rows`, that gets the rows of
// uniform runs.
Status scan_blocks(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                   const Reader::ScanPiece& piece, const ScanFn& fn, bool* stopped,
                   const Reader::DamageFn& damaged = {}, const Reader::RowsFn* rows = nullptr);
Result<std::vector<Reader::ScanPiece>> pieces_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                 const EpochEntry& epoch, uint64_t blocks_min,
                                                 const Reader::DamageFn& damaged = {});

// Whether a walk that skips damage may continue after this failure.
bool can_be_passed(const Status& status);

// The share of one part of a divided scan in a partition: the runs that begin at or after `from` / `parts` of
// its blocks and before `to` / `parts`. from = to: nothing.
struct PartitionShare {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t parts = 1;

  bool is_nothing() const { return from == to; }
  bool is_all() const { return from == 0 && to == parts; }
  // Whether a run of `all`, which has the partition's blocks of the epoch, belongs to it.
  bool has(const Reader::ScanPiece& run, const Reader::ScanPiece& all) const {
    const uint64_t begin = (run.first_block - all.first_block) * parts;
    return begin >= from * all.blocks && begin < to * all.blocks;
  }
};
PartitionShare share_of(PartitionNumber partition, uint32_t partitions, uint32_t part, uint32_t parts);

// These runs, which are adjacent. None: no run begins there. Reads the header of every run, but none if the
// share is the whole partition.
Result<std::optional<Reader::ScanPiece>> piece_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                  const EpochEntry& epoch, const PartitionShare& share);

}  // namespace swale::imd
