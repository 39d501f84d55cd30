// PassRuns: how many runs of an epoch each rank of a pass reads beside one another. All of them have chunks
// in memory, so a pass takes as many epochs as fit.
//
// Threads: one at a time. Errors: kCorruption if an index log cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"

namespace swale::imd {

class PassRuns {
 public:
  // The objects referred to must outlive it. `ranks` share the pass.
  PassRuns(const ReaderFiles& files, const Manifest& manifest, uint32_t ranks)
      : manifest_(manifest), ranks_(ranks), partitions_(files, manifest) {}

  // 0: no log has the epoch any more.
  Result<uint64_t> of(EpochNumber epoch);
  // That fit into so much memory, with half of it for their chunks.
  static uint64_t most_in(size_t memory_bytes);

 private:
  const Manifest& manifest_;
  const uint32_t ranks_;
  PartitionCache partitions_;
  std::map<EpochNumber, uint64_t> known_;
};

}  // namespace swale::imd
