// ServerMemory: what one metadata server takes of its process's memory, by part, and its options for a given
// amount. Pure arithmetic; docs/design/shared-resources.md shows it.
//
//   write buffers  two of them, with the groups that pass their limit
//   sorting        copies of a buffer for lookups and for its flush
//   trees          compressed buffers, until a checkpoint has merged them
//   cache          blocks of sorted files that were read
//   work           one request and its answer, one record of the log, one checkpoint's blocks
//
// The first four shrink together with the budget; work does not, because the largest message does not. Not
// among them: what is stored (names, attributes, runs, indexes of sorted files): content_bytes, which grows
// with it.
//
// Threads: free functions, values.
#pragma once

#include <cstdint>

#include "meta/index/shard.h"

namespace swale::meta {

struct ServerMemory {
  uint64_t write_buffers = 0;
  uint64_t sorting = 0;
  uint64_t trees = 0;
  uint64_t cache = 0;
  uint64_t work = 0;

  uint64_t bytes() const { return write_buffers + sorting + trees + cache + work; }
};

// What a server takes at most with these options.
ServerMemory server_memory(const ShardOptions& options);
uint64_t server_bytes_least(const ShardOptions& options);
// The options, with smaller buffers and a smaller cache where that is needed to stay within `bytes`. Requires
// server_bytes_least.
ShardOptions options_within(const ShardOptions& options, uint64_t bytes);

// What stored things take: an upper bound of what the allocator has given for them.
struct StoredThings {
  uint64_t names = 0;
  uint64_t table_bytes = 0;   // tables of runs of sealed files
  uint64_t index_bytes = 0;   // ShardState::index_memory_bytes
  uint64_t record_bytes = 0;  // Shard::record_memory_bytes
};
uint64_t content_bytes(const StoredThings& things);

}  // namespace swale::meta
