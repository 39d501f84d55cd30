// Walks all records of one epoch in one partition, in storage order, chunk by chunk. Values that lie in value logs are left
// to the caller.
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

// `*stopped`: set if `fn` said so. kCorruption also if the number of records is not the one that the index has.
Status scan_epoch(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                  const ScanFn& fn, bool* stopped);

// The same of a piece, of which pieces_of made all. With `damaged`, blocks that are damaged or cannot be read are passed;
// and pieces_of looks for the next run where the header of one is lost.
Status scan_blocks(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                   const Reader::ScanPiece& piece, const ScanFn& fn, bool* stopped,
                   const Reader::DamageFn& damaged = {});
Result<std::vector<Reader::ScanPiece>> pieces_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                 const EpochEntry& epoch, uint64_t blocks_min,
                                                 const Reader::DamageFn& damaged = {});

// Whether a walk that is to go on after damage goes on after this.
bool can_be_passed(const Status& status);

// What one part of a divided scan has of a partition: the runs that begin at `from` / `parts` of its blocks or behind,
// and before `to` / `parts`. from = to: nothing.
struct PartitionShare {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t parts = 1;
};
PartitionShare share_of(uint32_t partition, uint32_t partitions, uint32_t part, uint32_t parts);

// These runs, which lie side by side. None: none begins there. Reads the header of every run, but none if the share is
// the whole partition.
Result<std::optional<Reader::ScanPiece>> piece_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                  const EpochEntry& epoch, const PartitionShare& share);

}  // namespace swale::imd
