// Key hashing, and how successive parts of one 64-bit hash choose destination, way, slice, bucket and
// remainder.
//
// Hash "xxh3-64" (XXH3_64bits, seed 0) is part of the on-disk format: its name stands in swale.json.
// A choice among n takes the *top* of the hash and leaves the rest: with h as a fraction in [0, 1), h * n has
// the choice as its integer part and a fresh uniform fraction as its rest. Using the same bits twice would
// make all records of a partition share their leading bits and collapse the sketch
// (docs/design/run-format.md).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/uint128.h"

namespace swale {

inline constexpr char kHashName[] = "xxh3-64";

using Hash = uint64_t;

// Not inline: their many cases by length would crowd the registers of the loops that call them.
Hash hash_bytes(Bytes bytes);
Hash hash_bytes_seeded(Bytes bytes, uint64_t seed);

struct HashChoice {
  uint32_t index;  // in [0, n)
  Hash rest;       // uniform and independent of index
};

// Requires n >= 1.
inline HashChoice choose(Hash hash, uint32_t n) {
  const auto product = static_cast<Uint128>(hash) * n;
  return {static_cast<uint32_t>(product >> 64), static_cast<Hash>(product)};
}

// The contribution of one record to an epoch's order-independent checksum ("xxh3-row-sum"): a sum modulo 2^64 of these
// over all records is equal at the appenders and at the indexers exactly if no record was lost, doubled, altered or
// paired with another record's key (up to 2^-64 chance). `row` is the key with the value right behind it, as records
// lie in frames, memtables and blocks.
inline uint64_t record_digest(Bytes row, size_t key_bytes) { return hash_bytes_seeded(row, key_bytes); }

}  // namespace swale
