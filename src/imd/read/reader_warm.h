// Warming: reads all slices of one partition's segments into a ReadCache, in large reads, before queries ask.
//
// Slices enter as long as they fit; they displace nothing. A slice that is damaged is passed over: the query
// that needs it says so. Threads: free functions. Memory: one read of about 1 MiB.
// Errors: those of storage; kCorruption if the index log is shorter than its footer says.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "imd/read/read_cache.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"

namespace swale::imd {

struct Warmed {
  uint64_t bytes = 0;  // that the cache holds of what was asked
  bool full = false;   // a slice did not fit
};

// Of `segments`, a part of logs.segments. Adds to `*warmed`; ends when it is full.
Status warm_segments(const ReaderFiles& files, const PartitionLogs& logs,
                     std::span<const run::SegmentRecord> segments, Warmed* warmed);

}  // namespace swale::imd
