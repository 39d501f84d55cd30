// ShardShared: what all parts of a shard work on: where it stands, its options, and what was counted. What a
// single part needs to remember stands in that part.
//
// Threads: the shard's. A Work uses the device, the options, the names and the fence on any thread: they do
// not change.
#pragma once

#include <optional>
#include <string>

#include "meta/index/shard.h"
#include "meta/index/snapshot.h"
#include "store/job_claim.h"

namespace swale::meta {

struct ShardShared {
  ShardShared(io::Device& storage, const ShardOptions& wanted) : device(storage), options(wanted) {}
  ShardShared(const ShardShared&) = delete;

  uint32_t job() const { return claim->number(); }
  Status fence() const { return claim->fence(); }
  std::string path_of(uint32_t of_job, ShardFileKind kind, uint32_t number) const {
    return options.directory + "/" + shard_file_name(options.shard, of_job, kind, number);
  }
  std::string path_of(ShardFileKind kind, uint32_t number) const { return path_of(job(), kind, number); }

  io::Device& device;
  const ShardOptions options;
  std::optional<store::JobClaim> claim;  // from recover() on
  ShardCounters counters;
};

}  // namespace swale::meta
