// Options for the tests that crash an engine, and how many seeds they try.
// Threads: free functions.
#pragma once

#include <cstdlib>

#include "base/rng.h"
#include "tier/policy/options.h"

namespace swale::tier {

// Small enough for everything to be full all the time.
inline Options small_options(Rng* rng) {
  Options options;
  constexpr Policy kPolicies[] = {Policy::kBacking, Policy::kSsdBlocking, Policy::kSsdOverflowing,
                                  Policy::kSsdup,   Policy::kSsdupPlus,   Policy::kSwale};
  constexpr Durability kModes[] = {Durability::kPageCache, Durability::kGroupCommit, Durability::kSync};
  options.policy = kPolicies[rng->below(6)];
  options.durability = kModes[rng->below(3)];
  options.segment_count = 2 + static_cast<uint32_t>(rng->below(4));
  options.segment_bytes = rng->chance(1, 3) ? 16384 : 4096;
  options.queue_slots = 1 + static_cast<uint32_t>(rng->below(4));
  options.merge_bytes_max = 1000;
  options.backing_depth = 1 + static_cast<uint32_t>(rng->below(3));
  options.flush_pieces_max = 1 + static_cast<uint32_t>(rng->below(4));
  options.detector.stream_requests = 4;
  options.quiet_requests_per_second = 3;
  options.swale.gap_fill_share = 0.1;
  options.swale.byte_budget_random = static_cast<double>(rng->below(2));
  options.swale.overload_ratio = static_cast<double>(rng->below(3));
  options.idle_flush_ns = 3'000'000'000;
  options.age_flush_ns = 20'000'000'000;
  return options;
}

inline uint64_t scale() {
  const char* factor = std::getenv("SWALE_TIER_SEEDS");
  return factor ? std::strtoull(factor, nullptr, 10) : 1;
}

}  // namespace swale::tier
