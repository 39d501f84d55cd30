// Pair: what an auxiliary table stores about one append: some bits of the key's hash, and who has the record.
//
// The *home* of a key is the partition that the top of its hash chooses (base/hash.h); the table of that
// partition sees the rest of the hash, of which kHashBits are kept. Two keys whose kept bits are equal share
// their sources: a query for one of them also looks where the other one is, and misses nothing.
//
// A *source* is a rank, or rank * runs_per_rank + run where the table also names the run
// (TableParams::runs_per_rank). A pair is one 64-bit word with the hash above the source, so that sorting
// words sorts pairs by hash, then by source.
// Threads: values.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.h"

namespace swale::source {

inline constexpr uint32_t kHashBits = 34;
inline constexpr uint32_t kSourceBits = 64 - kHashBits;
inline constexpr uint32_t kSourcesMax = 1u << 24;  // a table's values have at most 24 + 8 bits
inline constexpr uint64_t kHashEnd = uint64_t{1} << kHashBits;

using Pair = uint64_t;

constexpr uint64_t kept_hash(Hash rest) { return rest >> kSourceBits; }
constexpr Pair make_pair(uint64_t kept, uint32_t source) { return kept << kSourceBits | source; }
constexpr uint64_t pair_hash(Pair pair) { return pair >> kSourceBits; }
constexpr uint32_t pair_source(Pair pair) {
  return static_cast<uint32_t>(pair & ((uint64_t{1} << kSourceBits) - 1));
}

// Sorts pairs whose top `equal_bits` are the same. `scratch` has as many words. Linear for hashes that are
// uniform; n log n where many pairs have one hash.
void sort_pairs(std::span<Pair> pairs, std::span<Pair> scratch, uint32_t equal_bits);

}  // namespace swale::source
