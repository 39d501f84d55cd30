// TableWriter: the bytes of one auxiliary table, shard by shard in the order of hashes, and its index and
// trailer last.
//
// Threads: one thread. Errors: what the sink answers is passed on; std::bad_alloc may be thrown. After
// either, the table is lost: write nothing more, and let nobody refer to it.
// Limits: kTableBytesMax (kResourceExhausted).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "source/shard.h"

namespace swale::source {

// Takes the next bytes of the table.
using ByteSink = std::function<Status(Bytes)>;

struct TableSummary {
  uint64_t bytes = 0;
  uint64_t keys = 0;
  uint64_t pairs = 0;
  uint64_t extras = 0;
  uint64_t bumped = 0;
  uint32_t shards = 0;
  uint32_t shard_bytes_max = 0;
};

class TableWriter {
 public:
  // Requires check_params(params).ok() and shard_bits <= kShardBitsMax.
  TableWriter(const TableParams& params, uint32_t shard_bits, ByteSink sink);

  // The pairs of the next shard: sorted, all different, and all with this shard's hashes.
  Status add_shard(std::span<const Pair> pairs);
  // A cuckoo table, main or side.
  Status add_cuckoo(const CuckooTable& table);
  // The pairs that cuckoo tables do not take, as a maplet: sorted and all different.
  Status add_cuckoo_rest(std::span<const Pair> pairs);
  // After the last shard. `keys` and `pairs` of a cuckoo table are the caller's to count.
  Result<TableSummary> finish(uint64_t cuckoo_keys = 0, uint64_t cuckoo_pairs = 0);

  uint32_t next_shard() const { return summary_.shards; }

 private:
  Status put_shard();

  TableParams params_;
  uint32_t shard_bits_;
  ByteSink sink_;
  ShardBuilder builder_;
  std::string shard_;
  std::string index_;
  TableSummary summary_;
};

}  // namespace swale::source
