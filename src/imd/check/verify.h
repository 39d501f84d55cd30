// verify_directory: reads every byte that the manifest promises and checks everything that can be checked: checksums,
// block and slice identities, that every record is found through the index at its own place, counts and digests per
// epoch against the manifest.
//
// Partition by partition and epoch by epoch: all slices of the segments are opened and kept, then the runs are walked,
// and every record must be named by exactly one candidate of the index, at its own place. Counts, bytes and digests
// are summed over all partitions and compared with the epoch log.
// Threads: any; the reader may be refreshed meanwhile. Memory: the index of one epoch in one partition, about 1.4 bytes a
// record, and one chunk.
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
  std::vector<Status> problems;
};
using VerifyProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Of the epochs that `reader` answers on now. If there are problems because a job has dropped some of these epochs meanwhile
// (imd.resume_after), the epochs that are there instead are verified. Returns all problems, at most `problems_max`.
// `progress` may be empty.
VerifyReport verify_directory(const Reader& reader, size_t problems_max,
                              const VerifyProgressFn& progress = {});

}  // namespace swale::imd
