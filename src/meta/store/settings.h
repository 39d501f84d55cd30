// The options of a metadata store, as rows of the table of options (base/config.h).
//
// Threads: free functions.
#pragma once

#include <optional>
#include <span>

#include "base/config.h"
#include "io/lock_file.h"
#include "meta/index/shard.h"
#include "meta/server/delegate.h"

namespace swale::meta {

// What an opening does about a store that is there, or is not. All ranks give the same.
enum class OpenStore : uint8_t {
  kExisting = 0,   // kNotFound if there is none
  kCreate = 1,     // makes it if there is none
  kExclusive = 2,  // kAlreadyExists if there is one
  // kNotFound if there is none. Takes no lock and changes nothing; another job may write meanwhile
  kReadOnly = 3,
};

struct StoreOptions {
  OpenStore open = OpenStore::kCreate;
  uint32_t servers_per_node = 1;
  uint64_t range_bytes = 64 << 20;
  std::optional<RingMode> ring = {};  // none: ring_for the job
  Nanos deadline = seconds(30);       // of an operation
  bool detect_runs = true;
  size_t files_max = 16 << 20;
  io::LeaseOptions lease;  // of swale.lock
  ShardOptions shard;      // directory, shard and job are set by the store
};

// What a job of so many ranks is best served by. A storm of n equal requests costs the root of the plain
// method n messages, and the ring some more hops, each of which waits for a scheduler: with 32 real ranks
// plain was 2.6 times as fast, on the model the ring is 1.6 times as fast with 64 clients, and 12 times with
// 1,024 (docs/results/metadata-store.md).
inline constexpr int kRingRanksMin = 64;
inline RingMode ring_for(int ranks) { return ranks < kRingRanksMin ? RingMode::kPlain : RingMode::kRing; }

std::span<const OptionRow> store_option_rows();
StoreOptions store_options(const Config& config);  // requires a Config that has the rows

}  // namespace swale::meta
