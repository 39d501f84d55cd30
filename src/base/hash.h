// Key hashing, and how successive parts of one 64-bit hash choose destination, way, slice, bucket and
// remainder.
//
// Hash "xxh3-64" (XXH3_64bits, seed 0) is part of the on-disk format: its name stands in swale.json.
// A choice among n takes the *top* of the hash and leaves the rest: with h as a fraction in [0, 1), h * n has
// the choice as its integer part and a fresh uniform fraction as its rest. Using the same bits twice would
// make all records of a partition share their leading bits and collapse the sketch
// (docs/design/run-format.md).
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/copy.h"
#include "base/uint128.h"

namespace swale {

inline constexpr char kHashName[] = "xxh3-64";

using Hash = uint64_t;

// Calls, but for the length that most keys have: many cases by length would crowd the registers of the loops around.
Hash hash_bytes_of_any_length(Bytes bytes);
inline Hash hash_eight_bytes(const char* bytes) { return XXH3_64bits(bytes, 8); }
inline Hash hash_bytes(Bytes bytes) {
  return bytes.size() == 8 ? hash_eight_bytes(bytes.data()) : hash_bytes_of_any_length(bytes);
}
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

// The contribution of one record to an epoch's order-independent checksum ("mum-row-sum"): a sum modulo 2^64 of these
// over all records is equal at the appenders and at the indexers if no record was lost, doubled, altered or paired with
// another record's key, and otherwise by a chance of about 2^-64. `row` is the key with the value right behind it, as
// records lie in frames, memtables and blocks.
//
// Products of neighbouring words, as in wyhash and XXH3, but with nothing to prepare: every record passes here twice,
// and this takes half the instructions of XXH3 for a row of 48 bytes. Not for hash tables.
inline uint64_t record_digest(Bytes row, size_t key_bytes) {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr uint64_t kSecond = 0xd1b54a32d192ed03;
  constexpr uint64_t kStep = 0x8bb84b93962eacc8;
  constexpr uint64_t kLast = 0x2d358dccaa6c78a5;
  const auto load = [](const char* at) { return get_u64(at); };
  const auto product = [](uint64_t a, uint64_t b) {
#if defined(__x86_64__)
    uint64_t upper = b;  // as below, but without a way through memory, which gcc takes here
    asm("mulq %1" : "+a"(a), "+d"(upper) : : "cc");
    return a ^ upper;
#else
    const auto wide = static_cast<Uint128>(a) * b;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
#endif
  };
  uint64_t sum = (uint64_t{row.size()} << 8 | key_bytes) * kLast;
  uint64_t first = kFirst;
  const char* at = row.data();
  const char* const end = at + row.size();
  if (row.size() >= 16) [[likely]] {
    size_t pairs = row.size() / 16;
    do {
      sum += product(load(at) ^ first, load(at + 8) ^ kSecond);
      at += 16;
      first += kStep;
    } while (--pairs != 0);
    // The last words overlap those before them.
    if (row.size() % 16 != 0) sum += product(load(end - 16) ^ first, load(end - 8) ^ kSecond);
  } else if (!row.empty()) {
    char padded[16] = {};
    copy_bytes(padded, at, row.size());
    sum += product(load(padded) ^ first, load(padded + 8) ^ kSecond);
  }
  sum ^= sum >> 32;
  sum *= kLast;
  return sum ^ sum >> 29;
}

}  // namespace swale
