// verify_directory: reads every byte that the manifest promises and checks all of it: checksums, block and
// slice identities, that the index leads to every record at its own place, and counts and digests per epoch
// against the manifest.
//
// It works partition by partition and epoch by epoch: it opens and keeps all slices of the segments, then
// walks the runs; exactly one candidate of the index must name each record, at its own place. It sums counts,
// bytes and digests over all partitions and compares them with the epoch log. Then it does the same with each
// cluster, and compares what that holds of each epoch with the epoch log.
// Threads: any; another thread may refresh the reader meanwhile. Memory: the index of one epoch in one
// partition, about 1.4 bytes per record, one chunk, and 24 bytes per record that a key has in one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "imd/read/reader.h"

namespace swale::imd {

struct VerifyReport {
  uint64_t bytes_checked = 0;
  uint64_t records = 0;
  uint64_t epochs = 0;
  uint64_t partitions = 0;
  uint64_t clusters = 0;
  std::vector<Status> problems;
};
using VerifyProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Verifies the epochs that `reader` sees now. If problems arise because a job has dropped some of these
// epochs meanwhile (imd.resume_after), verifies the epochs that exist then. Returns all problems, at most
// `problems_max`. `progress` may be empty.
VerifyReport verify_directory(const Reader& reader, size_t problems_max,
                              const VerifyProgressFn& progress = {});

}  // namespace swale::imd
