// NamedRecords: the records that the index names for a key within one run. The records of a key stand one
// after the other in a run, so verification asks the index once for all of them: else a key of n records
// would cost n².
//
// Threads: one at a time. Memory: 24 bytes for each record of the key in the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "base/hash.h"
#include "run/run_cursor.h"
#include "run/segment_reader.h"

namespace swale::imd {

class NamedRecords {
 public:
  // Of a key by its hash, of a run by its first block.
  bool are_of(Hash hash, BlockNumber run_block) const { return hash_ == hash && run_block_ == run_block; }

  // Between begin() and end() every candidate of the key's hash is added, in any order.
  void begin(BlockNumber run_block, uint32_t run_blocks) {
    hash_.reset();
    run_block_ = run_block;
    run_blocks_ = run_blocks;
    candidates_.clear();
  }
  void add(const run::Candidate& candidate) {
    if (candidate.block < run_block_ + run_blocks_ && candidate.block + candidate.block_count > run_block_) {
      candidates_.push_back(candidate);
    }
  }
  void end(Hash hash) {
    std::sort(candidates_.begin(), candidates_.end(), before);
    hash_ = hash;
  }

  // How often the record is named; a whole index names it once. Requires end() for its key and run.
  uint32_t count(const run::ScannedRecord& record) const {
    const uint32_t slot = run::is_stream(record.run->kind) ? record.ordinal : record.row;
    return count_in_slot(record, slot) + count_in_slot(record, run::kAnySlot);
  }

 private:
  static bool before(const run::Candidate& a, const run::Candidate& b) {
    return std::tie(a.slot, a.block) < std::tie(b.slot, b.block);
  }

  uint32_t count_in_slot(const run::ScannedRecord& record, uint32_t slot) const {
    run::Candidate first;
    first.slot = slot;
    first.block = record.block - std::min<uint64_t>(record.block, run::kCandidateBlocksMax - 1);
    uint32_t count = 0;
    for (auto at = std::lower_bound(candidates_.begin(), candidates_.end(), first, before);
         at != candidates_.end() && at->slot == slot && at->block <= record.block; ++at) {
      count += record.is(*at) ? 1 : 0;
    }
    return count;
  }

  std::optional<Hash> hash_;  // none: the index was not asked, or failed
  BlockNumber run_block_ = {};
  uint32_t run_blocks_ = 0;
  std::vector<run::Candidate> candidates_;  // of the run, by slot and block
};

}  // namespace swale::imd
