// parallel_scan: reads epochs on several threads, lets `format` make text of the records, and writes it in
// storage order, as a single thread would.
//
// Threads take pieces (whole runs, imd::Reader::scan_pieces) in order. The thread with the first unfinished
// piece writes; each other thread buffers up to kAheadBytes of text and then waits. The writing thread never
// waits for another one.
//
// Threads: `threads` of them, the caller's included; all of them call `format`, one at a time calls `write`.
// Memory: 2 * threads * (kAheadBytes + a scan chunk), plus one record's text for each.
// Errors: the first one in storage order; everything before it was written. With ScanJob::damaged, damage is
// no error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "query/expression.h"

namespace swale::tools {

struct ScanJob {
  static constexpr size_t kAheadBytes = 8 * kMiB;

  std::vector<uint32_t> epochs = {};  // ascending
  unsigned threads = 1;
  uint64_t limit = 0;         // records that are written; 0: all
  uint64_t blocks_min = 256;  // per piece
  // Appends a record's text; false: skip the record.
  std::function<bool(const query::RecordView&, std::string*)> format = {};
  // False: stop, as writing failed or enough was written.
  std::function<bool(Bytes)> write = {};
  std::function<void(uint64_t done, uint64_t total)> progress = {};  // records; may be empty
  // If given, damage and failures of storage do not end the scan. One thread at a time calls it for each
  // skipped place, with the number of records that were not read because of it: after the earlier pieces were
  // written, or at once if the place is a run that cannot be found.
  std::function<void(const Status& cause, uint64_t records)> damaged = {};
};

// Returns the number of records written.
Result<uint64_t> parallel_scan(imd::Reader& reader, const ScanJob& job);

}  // namespace swale::tools
