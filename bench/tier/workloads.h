// Workloads of the tier's benchmarks: which writes arrive at one I/O server, and in which order.
//
// Sizes are those of both servers of the paper's testbed; a server gets half of each request. Order of
// arrival: request i of process r of n comes at i + r/n + N(0, 1) rounds, which reproduces the random
// percentages that the paper prints for its strided pattern (docs/design/tier.md).
//
// Threads: pure functions of their arguments; the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace swale::tierbench {

struct Request {
  uint64_t offset = 0;
  uint32_t length = 0;
  bool read = false;
};

// kZipf: the block of rank k (ranks lie anywhere) is written in proportion to 1/k.
enum class Pattern { kContiguous, kStrided, kRandom, kTiles, kZipf };

// One program: its requests in order of arrival; each of its processes has one request under way.
struct Program {
  std::vector<Request> requests;
  uint32_t processes = 1;
  uint64_t base = 0;  // where its file lies on the backing device
  Nanos start = 0;
};

struct ProgramSpec {
  Pattern pattern = Pattern::kContiguous;
  uint32_t processes = 16;
  double gib = 8;              // of both servers
  uint32_t request_kib = 128;  // at one server
  double start_s = 0;
  uint32_t times = 1;       // the same region again and again: each time a part of `gib`
  double read_share = 0;    // of the requests: reads
  double spacing_gib = 20;  // between the begins of two programs' files
};

Program make_program(const ProgramSpec& spec, uint32_t number, uint64_t seed);

struct Workload {
  std::string name;
  std::vector<ProgramSpec> programs;
  bool one_after_the_other = false;  // throughput of all bytes over the sum of the times
  double ssd_gib = 8;                // of both servers
  uint64_t arrival_seed = 11;        // of the order of arrival
};

// "W1", "W2", "W3", "F11:32" (processes), "F8:64", "F2:random:16", "F14:10" (seconds between), "HPIO:64"
// (KiB), "TILE:32", "mixed:9001" (patterns, processes, sizes and SSD drawn from a seed), "drawn:9001" (the
// same, and the order of arrival). Traffic that the paper does not have: "ZIPF:16" (processes: hot blocks
// written again and again), "GROW:32" (files that grow, a process each), "AGAIN:20" (the same region so many
// times), "READS:50" (percent of the requests). Without a match: no programs.
Workload make_workload(const std::string& name);

}  // namespace swale::tierbench
