// The counters of a metadata server, as it tells them to clients and to `swale stats`.
// Threads: free functions.
#pragma once

#include <span>

#include "base/counters.h"
#include "meta/index/shard.h"
#include "meta/server/delegate.h"

namespace swale::meta {

struct ServerCounters {
  uint64_t requests = 0, puts = 0, gets = 0, refused = 0, held_max = 0;
  uint64_t ranges = 0, pieces = 0;  // asked for in gets, and answered
  uint64_t run_queries = 0;
  uint64_t joined_gets = 0;         // gets that were looked up with others
  uint64_t attribute_requests = 0;  // that arrived, from clients and delegates
  uint64_t follow_ups = 0;          // truncates and removals at this root
};

// Where a server's counters come from, of one moment.
struct ServerNumbers {
  ServerCounters server;
  ShardCounters shard;
  ShardState state;
  Delegate::Counters ring;
  uint64_t files = 0;
  uint64_t reserved_bytes = 0;  // of its process's memory
  uint64_t stored_bytes = 0;    // of it, for what is stored
  bool failed = false;          // its storage
};

std::span<const CounterRow> server_counter_rows();
Counters server_counters(const ServerNumbers& numbers, uint32_t server);

}  // namespace swale::meta
