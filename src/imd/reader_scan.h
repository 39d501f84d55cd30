// Walks all records of one epoch in one partition, in storage order, chunk by chunk. Values that lie in value logs are left
// to the caller.
// Threads: a free function. Memory: one chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "imd/reader.h"
#include "imd/reader_io.h"
#include "imd/reader_partition.h"
#include "run/run_cursor.h"

namespace swale::imd {

// False stops the walk.
using ScanFn = std::function<bool(const run::ScannedRecord&)>;

// `*stopped`: set if `fn` said so. kCorruption also if the number of records is not the one that the index has.
Status scan_epoch(const PartitionLogs& logs, const EpochEntry& epoch, const ReaderOptions& options,
                  ReadCounters& counters, const ScanFn& fn, bool* stopped);

// The same of a piece, of which pieces_of made all.
Status scan_blocks(const PartitionLogs& logs, const EpochEntry& epoch, const Reader::ScanPiece& piece,
                   const ReaderOptions& options, ReadCounters& counters, const ScanFn& fn, bool* stopped);
Result<std::vector<Reader::ScanPiece>> pieces_of(const PartitionLogs& logs, const EpochEntry& epoch,
                                                 uint64_t blocks_min, ReadCounters& counters);

}  // namespace swale::imd
