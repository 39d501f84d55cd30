// Walks all records of one epoch in one partition, in storage order, chunk by chunk.
// Threads: a free function. Memory: one chunk.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "imd/reader.h"
#include "imd/reader_io.h"
#include "imd/reader_partition.h"

namespace swale::imd {

// `*stopped`: set if `fn` said so. kCorruption also if the number of records is not the one that the index has.
Status scan_epoch(const PartitionLogs& logs, const EpochEntry& epoch, const ReaderOptions& options,
                  ReadCounters& counters, const Reader::RecordFn& fn, bool* stopped);

}  // namespace swale::imd
