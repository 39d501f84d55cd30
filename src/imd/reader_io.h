// ReadWave: read requests that do not wait for one another, of any number of files; and the counters that a Reader
// keeps of them. The one place through which all reads of queries and scans pass.
//
// Threads: a ReadWave belongs to one thread; ReadCounters are thread-safe.
// Errors: kCorruption that names file, offset and lengths if a file ends before what was asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/metrics.h"
#include "base/status.h"
#include "imd/reader.h"
#include "io/device.h"

namespace swale::imd {

struct ReadCounters {
  Counter bytes_read;
  Counter reads;
  HighWater depth_max;
  Counter queries;
  Counter false_candidates;

  ReadStats snapshot() const {
    return {bytes_read.value(), reads.value(), depth_max.value(), queries.value(), false_candidates.value()};
  }
};

class ReadWave {
 public:
  ReadWave(size_t reads_in_flight_max, ReadCounters& counters)
      : reads_in_flight_max_(reads_in_flight_max), counters_(counters) {}

  // Requests to one file are best added one after the other: they go to the device together.
  void add(io::File& file, uint64_t offset, MutableBytes out);
  bool empty() const { return files_.empty(); }

  // Reads all of it, whole; the first failure if any fails. The wave is empty afterwards.
  Status run();

 private:
  Status run_part(size_t begin, size_t end);

  const size_t reads_in_flight_max_;
  ReadCounters& counters_;
  std::vector<io::File*> files_;  // of each request
  std::vector<io::ReadRequest> requests_;
};

}  // namespace swale::imd
