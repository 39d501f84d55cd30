// parallel_scan: reads epochs on several threads and hands what `format` makes of the records to one writer, in the
// order in which one thread would: storage order.
//
// Pieces (whole runs, imd::Reader::scan_pieces) are given out in order. The thread that has the first unfinished piece
// writes; the others keep up to kAheadBytes of text each and wait then, so nothing waits for a thread that waits.
//
// Threads: `threads` of them, the caller's included; `format` is called by all of them, `write` by one at a time.
// Memory: 2 * threads * (kAheadBytes + a scan chunk), and one record's text more for each.
// Errors: the first in storage order; what comes before it has been written. With ScanJob::damaged: none of damage.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "tools/expression.h"

namespace swale::tools {

struct ScanJob {
  static constexpr size_t kAheadBytes = 8 * kMiB;

  std::vector<uint32_t> epochs = {};  // ascending
  unsigned threads = 1;
  uint64_t limit = 0;         // records that are written; 0: all
  uint64_t blocks_min = 256;  // of a piece
  // Appends a record's text; false: the record is not wanted.
  std::function<bool(const RecordView&, std::string*)> format = {};
  // False: it cannot be written, or enough is.
  std::function<bool(Bytes)> write = {};
  std::function<void(uint64_t done, uint64_t total)> progress = {};  // records; may be empty
  // If given, damage and failures of storage do not end the scan. Called by one thread at a time, for each place that is
  // passed, with how many records were not read because of it: when the pieces before it have been written; at once if it is
  // the place of a run that cannot be found.
  std::function<void(const Status& cause, uint64_t records)> damaged = {};
};

// Returns how many records were written.
Result<uint64_t> parallel_scan(imd::Reader& reader, const ScanJob& job);

}  // namespace swale::tools
