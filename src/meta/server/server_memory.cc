#include "meta/server/server_memory.h"

#include <algorithm>
#include <cassert>

#include "base/bytes.h"
#include "meta/index/entries.h"
#include "meta/index/sorted_file.h"
#include "meta/server/messages.h"

namespace swale::meta {
namespace {

constexpr uint64_t kSteps = 64;
constexpr uint64_t kLargestPutBytes = kItemsMax * sizeof(Entry);
// A get of kItemsMax ranges: the ranges, an answer and a state for each, their order, the pieces, and the
// response.
constexpr uint64_t kLargestGetBytes = 48 * kMiB;
// a sorted file of each table that is merged, and the new one
constexpr uint64_t kCheckpointBytes = 8 * kMiB;
// Records of an open group and of one that is committed, 4 MiB each in twice as much memory, and the record
// of
// the log.
constexpr uint64_t kAttributeGroupsBytes = 24 * kMiB;

// With so many 64ths of the buffers and the cache.
ShardOptions scaled(const ShardOptions& options, uint64_t share) {
  const auto part = [share](uint64_t least, uint64_t all) {
    return all <= least ? all : least + (all - least) * share / kSteps;
  };
  ShardOptions some = options;
  some.write_buffer_entries = part(16 * 1024, options.write_buffer_entries);
  some.compression_buffer_bytes = part(kMiB, options.compression_buffer_bytes);
  some.group_bytes_max = part(kMiB, options.group_bytes_max);
  some.cache_bytes = part(kSortedFileBlocks * BlockCache::kFrameBytes, options.cache_bytes);
  return some;
}

}  // namespace

ServerMemory server_memory(const ShardOptions& options) {
  const uint64_t buffer = options.write_buffer_entries * sizeof(Entry);
  const uint64_t group = options.group_bytes_max + kLargestPutBytes;
  ServerMemory memory;
  memory.write_buffers = 2 * (buffer + buffer / 4) + 3 * group;
  memory.sorting = 4 * buffer;
  memory.trees = 2 * options.compression_buffer_bytes + buffer;
  memory.cache = std::max<uint64_t>(options.cache_bytes, kSortedFileBlocks * BlockCache::kFrameBytes);
  memory.work = kLargestGetBytes + kCheckpointBytes + kAttributeGroupsBytes + options.group_bytes_max;
  return memory;
}

uint64_t server_bytes_least(const ShardOptions& options) { return server_memory(scaled(options, 0)).bytes(); }

ShardOptions options_within(const ShardOptions& options, uint64_t bytes) {
  assert(bytes >= server_bytes_least(options));
  uint64_t share = kSteps;
  while (share > 0 && server_memory(scaled(options, share)).bytes() > bytes) --share;
  return scaled(options, share);
}

uint64_t content_bytes(const StoredThings& things) {
  constexpr uint64_t kNameBytes = 512;  // about 350, and half of that for the table's growth
  return things.names * kNameBytes + things.table_bytes * 5 / 4 + things.index_bytes * 5 / 4 +
         things.record_bytes;
}

}  // namespace swale::meta
