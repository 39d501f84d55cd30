// The options of a metadata store, as rows of the table of options (base/config.h).
//
// Threads: free functions.
#pragma once

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
  kReadOnly =
      3,  // kNotFound if there is none. Takes no lock and changes nothing; another job may write meanwhile
};

struct StoreOptions {
  OpenStore open = OpenStore::kCreate;
  uint32_t servers_per_node = 1;
  uint64_t range_bytes = 64 << 20;
  RingMode ring = RingMode::kRing;
  Nanos deadline = seconds(30);  // of an operation
  bool detect_runs = true;
  size_t files_max = 16 << 20;
  io::LeaseOptions lease;  // of swale.lock
  ShardOptions shard;      // directory, shard and job are set by the store
};

std::span<const OptionRow> store_option_rows();
StoreOptions store_options(const Config& config);  // requires a Config that has the rows

}  // namespace swale::meta
