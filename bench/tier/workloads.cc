#include "bench/tier/workloads.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/bytes.h"
#include "base/rng.h"

namespace swale::tierbench {
namespace {

constexpr uint64_t kTileRow = 4;    // requests in a row of a tile
constexpr uint64_t kZipfShare = 4;  // a program writes so many times what its region has

double uniform(Rng* rng) { return (static_cast<double>(rng->next() >> 11) + 0.5) * 0x1p-53; }

double normal(Rng* rng) {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(uniform(rng)));
  return radius * std::cos(2 * 3.14159265358979323846 * uniform(rng));
}

// The place of request i of process r, in requests from the begin of the file.
uint64_t place(Pattern pattern, uint64_t i, uint64_t r, uint64_t n, uint64_t per_process) {
  switch (pattern) {
    case Pattern::kContiguous:
    case Pattern::kRandom:
    case Pattern::kZipf:
      return r * per_process + i;
    case Pattern::kStrided:
      return i * n + r;
    case Pattern::kTiles: {
      uint64_t across = 1;
      while (across * across < n) across *= 2;
      const uint64_t rows = per_process / kTileRow;
      const uint64_t row = r / across * rows + i / kTileRow;
      return (row * across + r % across) * kTileRow + i % kTileRow;
    }
  }
  return 0;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

Pattern pattern_of(const std::string& name) {
  return name == "contiguous" ? Pattern::kContiguous
         : name == "strided"  ? Pattern::kStrided
                              : Pattern::kRandom;
}

// Blocks of one region, drawn in proportion to 1 / rank by the inverse of the sum of 1 / k, which is about
// ln. Ranks are spread over the region by a multiplication with a number that has no factor in common with
// the count.
std::vector<uint64_t> zipf_places(uint64_t count, uint64_t blocks, Rng* rng) {
  constexpr uint64_t kPrime = 2'654'435'761;
  std::vector<uint64_t> places(count);
  for (uint64_t& at : places) {
    const double rank = std::pow(static_cast<double>(blocks), uniform(rng)) - 1;
    at = static_cast<uint64_t>(rank) * kPrime % blocks;
  }
  return places;
}

Workload draw_mix(uint64_t seed) {
  Rng rng(seed);
  Workload workload;
  const uint64_t programs = 1 + rng.below(3);
  double total = 0;
  for (uint64_t i = 0; i < programs; ++i) {
    ProgramSpec spec;
    spec.pattern = static_cast<Pattern>(rng.below(4));
    spec.processes = 8u << rng.below(5);
    spec.gib = static_cast<double>(2 + rng.below(7));
    spec.request_kib = rng.chance(1, 3) ? 64 : 128;
    spec.start_s = rng.chance(1, 3) ? static_cast<double>(rng.below(20)) : 0;
    total += spec.gib;
    workload.programs.push_back(spec);
  }
  workload.ssd_gib = std::max(1.0, total * (0.2 + 0.1 * static_cast<double>(rng.below(6))));
  return workload;
}

}  // namespace

Program make_program(const ProgramSpec& spec, uint32_t number, uint64_t seed) {
  Rng rng(seed + number);
  const uint64_t length = spec.request_kib * kKiB;
  const auto requests = static_cast<uint64_t>(spec.gib * static_cast<double>(kGiB) / 2) / length;
  uint64_t per_process = requests / spec.processes / spec.times;
  if (spec.pattern == Pattern::kTiles) per_process = per_process / kTileRow * kTileRow;
  struct Arrival {
    double key;
    uint64_t offset;
  };
  std::vector<Arrival> arrivals;
  arrivals.reserve(per_process * spec.processes * spec.times);
  std::vector<uint64_t> order(per_process);
  for (uint64_t r = 0; r < spec.processes * spec.times; ++r) {
    const uint64_t rank = r % spec.processes;
    const auto round = static_cast<double>(r / spec.processes * per_process);  // of the same region
    std::iota(order.begin(), order.end(), 0);
    if (spec.pattern == Pattern::kRandom)
      for (uint64_t i = per_process; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    if (spec.pattern == Pattern::kZipf) order = zipf_places(per_process, requests / kZipfShare, &rng);
    for (uint64_t i = 0; i < per_process; ++i)
      arrivals.push_back(
          {round + static_cast<double>(i) + static_cast<double>(rank) / spec.processes + normal(&rng),
           place(spec.pattern, order[i], spec.pattern == Pattern::kZipf ? 0 : rank, spec.processes,
                 per_process) *
               length});
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.key < b.key; });
  Program program;
  program.processes = spec.processes;
  program.base = static_cast<uint64_t>(number * spec.spacing_gib * static_cast<double>(kGiB));
  program.start = seconds(spec.start_s);
  for (const Arrival& arrival : arrivals)
    program.requests.push_back({arrival.offset, static_cast<uint32_t>(length),
                                spec.read_share > 0 && uniform(&rng) < spec.read_share});
  return program;
}

Workload make_workload(const std::string& name) {
  const auto parts = split(name);
  const double number = parts.size() > 1 ? std::strtod(parts.back().c_str(), nullptr) : 0;
  const auto processes = static_cast<uint32_t>(number);
  Workload workload;
  if (name == "W1") workload.programs = {{Pattern::kContiguous}, {Pattern::kRandom}};
  if (name == "W2") workload.programs = {{Pattern::kRandom}, {Pattern::kRandom}};
  if (name == "W3") workload.programs = {{Pattern::kStrided, 64, 16}, {Pattern::kContiguous, 64, 16}};
  if (parts[0] == "F11" && processes > 0) {
    workload.programs = {{Pattern::kContiguous, processes, 16},
                         {Pattern::kStrided, processes, 16},
                         {Pattern::kRandom, processes, 8}};
    workload.one_after_the_other = true;
    workload.ssd_gib = 64;
  }
  if (parts[0] == "F8" && processes > 0) {
    workload.programs = {{Pattern::kStrided, processes, 16}};
    workload.ssd_gib = 32;
  }
  if (parts[0] == "F2" && parts.size() == 3 && processes > 0) {
    workload.programs = {{pattern_of(parts[1]), processes, 16}};
    workload.ssd_gib = 32;
  }
  // The second program starts when the first one has ended, and the gap: run() knows when.
  if (parts[0] == "F14") {
    workload.programs = {{Pattern::kRandom}, {Pattern::kRandom, 16, 8, 128, number}};
    workload.ssd_gib = 8.016;  // with the log's headers: the first program fills it exactly
  }
  if (parts[0] == "HPIO" && processes > 0) {
    const uint32_t kib = processes <= 64 ? processes : processes / 2;  // longer ones are striped
    workload.programs = {{Pattern::kContiguous, 32, 8, kib}, {Pattern::kStrided, 32, 8, kib}};
    workload.ssd_gib = 64;
  }
  if (parts[0] == "TILE" && processes > 0) {
    workload.programs = {{Pattern::kContiguous, processes, 16, 64}, {Pattern::kTiles, processes, 16, 64}};
    workload.ssd_gib = 64;
  }
  if (parts[0] == "ZIPF" && processes > 0) workload.programs = {{Pattern::kZipf, processes}};
  if (parts[0] == "ZIPF") workload.ssd_gib = 4;
  if (parts[0] == "AGAIN" && processes > 0)
    workload.programs = {{Pattern::kContiguous, 16, 8, 128, 0, processes}};
  if (parts[0] == "AGAIN") workload.ssd_gib = 4;
  if (parts[0] == "GROW" && processes > 0) {
    const double each = 8.0 / processes;
    workload.programs.assign(processes, {Pattern::kContiguous, 1, each, 64, 0, 1, 0, 2 * each});
    workload.ssd_gib = 4;
  }
  if (parts[0] == "READS" && processes <= 100) {
    workload.programs = {{Pattern::kRandom, 16, 8, 128, 0, 1, number / 100}};
    workload.ssd_gib = 4;
  }
  if (parts[0] == "mixed" && parts.size() == 2) workload = draw_mix(static_cast<uint64_t>(number));
  if (parts[0] == "drawn" && parts.size() == 2) {
    workload = draw_mix(static_cast<uint64_t>(number));
    workload.arrival_seed = static_cast<uint64_t>(number);
  }
  workload.name = name;
  return workload;
}

}  // namespace swale::tierbench
