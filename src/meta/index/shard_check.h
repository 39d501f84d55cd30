// What a shard left on storage, for `swale verify`: reads everything, changes nothing.
//
// Threads: a free function. Errors: a verification goes on and counts.
#pragma once

#include <cstdint>
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

// Checks every checksum, every row, the order of keys in blocks, files and tables, and the counts of the
// manifest.
// A failure: not even the manifest can be read.
Result<ShardVerification> verify_shard(io::Device& device, const std::string& directory, uint32_t shard);

}  // namespace swale::meta
