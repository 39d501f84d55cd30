// A model of many metadata servers: what their messages cost, so that storms and bursts can be timed on
// machines that we do not have. Ranks are processors that receive and send one message at a time; the network
// has a latency.
//
// Constants. Sending and receiving a message cost 1.0 us each: 479,000 calls of 64 bytes a second between two
// ranks with many in flight are 2.1 us a call (docs/design/rpc.md). A message inside a node takes 5 us (half
// of a round trip of 13 us, less the two processors' work). The latency between nodes is not ours to measure
// on one machine: it is set so that the paper's own method, modelled, is 5.7 times as fast as its plain one
// (metakv, IV-F: 1,024 clients on 64 nodes, one server a node). The test pins this. The constants and our
// method came in one commit (aa3c008, 2026-11-22), so history does not show which was first; since then no
// constant has changed. What an entry costs a client and a server in run_burst comes from its caller, who
// has measured it.
//
// What is modelled. Plain: each client asks the root, which answers all when it has heard all. Direct and
// ring of the paper: a delegate waits for all its clients (and children), then forwards. Ours: the very
// Delegate of production, which forwards at once what it has received. Syncs of the log are in none of them.
//
// Source: the parameters are those of LogP (Culler et al., PPoPP 1993): latency, overhead; the gap is the
// overhead.
// Threads: free functions.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "meta/server/delegate.h"

namespace swale::sim {

struct FabricCosts {
  Nanos send = 1'000;
  Nanos receive = 1'000;
  Nanos local_latency = 5'000;
  Nanos latency = 23'500;
  double bytes_per_ns = 3.0;  // of one message, on the wire
};

enum class StormMethod { kPaperPlain, kPaperDirect, kPaperRing, kOursPlain, kOursDirect, kOursRing };

struct StormParams {
  StormMethod method = StormMethod::kOursRing;
  uint32_t nodes = 64;
  uint32_t clients_per_node = 16;
  uint32_t servers_per_node = 1;
  uint32_t radix = meta::kRingRadix;  // of ours; the paper's is 2
  uint32_t in_flight_max = 4;
  Nanos spread = 0;  // clients ask at random times in this span
  FabricCosts costs = {};
};

struct StormResult {
  Nanos slowest = 0;           // until the last client has its answer
  uint64_t root_messages = 0;  // that the root received and sent
  uint64_t messages = 0;       // of all
};

// All clients ask for one file's attributes.
StormResult run_storm(const StormParams& params);

// A burst of index puts or gets: each client has `entries` segments of one shared file, interleaved with all
// others'.
struct BurstParams {
  uint32_t nodes = 64;
  uint32_t clients_per_node = 16;
  uint32_t servers_per_node = 1;
  uint64_t entries = 1 << 16;  // of each client
  double client_ns = 0;        // CPU of the client for an entry
  double server_ns = 0;        // of the server for an item
  double wire_bytes = 0;       // of an item, both ways together
  double items_per_entry = 1;  // 1: each entry travels to its server; a run travels once to each server
  uint64_t batch = 64'000;     // items a message
  FabricCosts costs = {};
};
// The slowest client's time.
Nanos run_burst(const BurstParams& params);

}  // namespace swale::sim
