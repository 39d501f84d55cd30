// Ribbon retrieval: a function from keys to values of b bits that takes little more than b bits a key. It
// answers something for every key; only the answers for the keys that it was built from mean anything.
//
// A key has a start row and kRibbonWidth coefficients, a bit each; its value is the exclusive or of the rows
// that its coefficients name. Building is Gaussian elimination of a band matrix. With about as many rows as
// keys, some keys do not fit: those are *bumped*, and stored in another layer. In each bucket of kBucketRows
// start rows, keys are inserted from the highest row down; if one fails, it and all below it, down to the
// start of the bucket, are bumped, and the bucket's four-bit threshold says how many eighths-of-a-bucket rows
// are bumped, in steps of kThresholdStep rows. So the query knows from the threshold alone which layer to
// ask.
// Source: Dillinger, Huebschle-Schneider, Sanders, Walzer, "Fast Succinct Retrieval and Approximate
// Membership using
//   Ribbon", SEA 2022 (bumped ribbon retrieval, BuRR).
//
// Format: layers 1 and 2 are thresholds, then rows; layer 3 is rows.
//   - The starts of a layer are rows - 47 of them; a key's start is the high half of fraction * starts.
//   - thresholds: 4 bits for each 128 starts, the lower half of a byte first. A key whose start modulo 128 is
//     below 8 * threshold (128 if the threshold is 15) is not in this layer but in a later one.
//   - rows: value_bits bits each, filled up to a byte at the end. A key's value is the exclusive or of the
//     rows start + i for which bit i of its 48 coefficients is set.
//   - coefficients: ribbon_coefficients(fraction, seed), seed 0x1111, 0x2222, 0x3333 in layers 1, 2, 3.
//   - Layer 2 uses next_fraction(fraction, 2). Layer 3 uses next_fraction(f, 100 + the shard's seed), where f
//     is the fraction of layer 2, or of layer 1 if there is no layer 2.
// Threads: values. Errors: solve throws std::bad_alloc.
// Limits: values of 1..32 bits; 2^31 rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/uint128.h"

namespace swale::source {

inline constexpr uint32_t kRibbonWidth = 48;
inline constexpr uint32_t kBucketRows = 128;
inline constexpr uint32_t kThresholdStep = 8;
inline constexpr uint32_t kThresholdAll = 15;  // everything in the bucket is bumped

// A key of a layer: a fraction of 2^64, by which keys are sorted and from which the start row follows, and
// its value.
struct RibbonKey {
  uint64_t fraction;
  uint32_t value;
};

constexpr uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<Uint128>(a) * b >> 64);
}

// DO NOT CHANGE: tables on disk depend on these two.
constexpr uint64_t ribbon_coefficients(uint64_t fraction, uint64_t seed) {
  uint64_t x = (fraction ^ seed) * 0x9e3779b97f4a7c15;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 32;
  return (x | 1) & ((uint64_t{1} << kRibbonWidth) - 1);
}
constexpr uint64_t next_fraction(uint64_t fraction, uint64_t round) {
  uint64_t x = fraction * 0x9fb21c651e98df25 + round * 0xd1b54a32d192ed03;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

constexpr uint64_t start_rows(uint64_t rows) { return rows - (kRibbonWidth - 1); }  // requires rows >= width
constexpr uint64_t threshold_bytes(uint64_t rows) {
  return ((start_rows(rows) + kBucketRows - 1) / kBucketRows + 1) / 2;
}
constexpr uint64_t row_bytes(uint64_t rows, uint32_t value_bits) { return (rows * value_bits + 7) / 8; }

// Builds layers, one after the other, in memory that it keeps between them.
class RibbonSolver {
 public:
  // Keys are sorted by fraction, all different. Those that do not fit are appended to *bumped, and the
  // thresholds are appended to *thresholds. Requires rows >= kRibbonWidth.
  void solve_bumping(std::span<const RibbonKey> keys, uint32_t rows, uint64_t seed, std::string* thresholds,
                     std::vector<RibbonKey>* bumped);

  // All keys or none: false if the system has no solution.
  bool solve_all(std::span<const RibbonKey> keys, uint32_t rows, uint64_t seed);

  // Appends the rows of the system that was solved last. Rows that nothing determines are 0.
  void append_rows(uint32_t value_bits, std::string* out);

 private:
  struct Insert {
    bool fits;
    uint32_t row;  // that the key determines; kNoRow if earlier ones determine its value already
  };
  static constexpr uint32_t kNoRow = UINT32_MAX;

  void begin(uint32_t rows);
  Insert insert(const RibbonKey& key, uint64_t start, uint64_t seed);
  // Inserts the keys of one bucket. Returns the threshold; keys below it are bumped.
  uint32_t insert_bucket(std::span<const RibbonKey> keys, uint64_t first_row, uint64_t starts, uint64_t seed,
                         std::vector<RibbonKey>* bumped);

  uint32_t rows_ = 0;
  std::vector<uint64_t> coefficients_;  // of the equation that begins at each row; 0: none
  std::vector<uint32_t> values_;        // of that equation; then the solution
  std::vector<uint32_t> inserted_;      // rows that the keys of a bucket determine, from the last key on
};

// The value at a start row. `rows` has kSlackBytes after it.
uint32_t ribbon_value(const char* rows, uint64_t start, uint64_t coefficients, uint32_t value_bits);

// Whether the threshold says that keys of this start row are bumped.
bool is_bumped(const char* thresholds, uint64_t start);

}  // namespace swale::source
