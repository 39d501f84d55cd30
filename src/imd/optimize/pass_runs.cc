#include "imd/optimize/pass_runs.h"

#include <algorithm>

#include "imd/optimize/stripe_reader.h"

namespace swale::imd {

Result<uint64_t> PassRuns::of(EpochNumber epoch) {
  if (const auto known = known_.find(epoch); known != known_.end()) return known->second;
  const EpochEntry& entry = manifest_.epochs[epoch];
  if (entry.freed) return 0;
  const uint32_t partitions = manifest_.job_of(entry).ranks;
  uint64_t runs = 0;
  for (PartitionNumber partition(0); partition < partitions; ++partition) {
    uint32_t depth = 0;
    SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(entry, partition, &depth));
    for (const run::SegmentRecord& segment : logs->segments_of(epoch)) runs += segment.runs;
  }
  if (StripeReader::in_hash_order(manifest_, entry)) {
    // A rank's range of hashes may begin and end within a partition.
    const uint64_t wanted = std::min<uint64_t>(partitions, (partitions + ranks_ - 1) / ranks_ + 1);
    runs = (runs * wanted + partitions - 1) / partitions;
  }
  known_[epoch] = runs;
  return runs;
}

uint64_t PassRuns::most_in(size_t memory_bytes) {
  constexpr size_t kChunksOfRun = 3;
  return memory_bytes / 2 / (kChunksOfRun * StripeReader::kChunkBytesMin);
}

}  // namespace swale::imd
