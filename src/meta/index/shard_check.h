// What a shard left on storage, for `swale meta verify` and `swale meta dump`: reads everything, changes nothing.
//
// Threads: free functions. Errors: the first one ends a dump; a verification goes on and counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"

namespace swale::meta {

struct ShardVerification {
  uint64_t tables = 0, sorted_files = 0, blocks = 0, entries = 0;
  uint64_t files = 0, runs = 0, clients = 0;
  uint64_t logs = 0, groups = 0, log_entries = 0, torn_bytes = 0;
  uint64_t obsolete_files = 0;   // that the manifest does not name: of earlier jobs, or of a crash
  std::vector<Status> problems;  // each names the file, and the offset where that is known
};

// The shards that have files in a directory, ascending.
Result<std::vector<uint32_t>> list_shards(io::Device& device, const std::string& directory);

// Checks every checksum, every row, the order of keys in blocks, files and tables, and the counts of the manifest.
// A failure: not even the manifest can be read.
Result<ShardVerification> verify_shard(io::Device& device, const std::string& directory, uint32_t shard);

// One line a thing, in the order of the manifest: tables, blocks (rows too if `rows`), files with their runs, logs.
Status dump_shard(io::Device& device, const std::string& directory, uint32_t shard, bool rows,
                  const std::function<void(const std::string& line)>& sink);

}  // namespace swale::meta
