#include "source/ribbon.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "source/bit_stream.h"

namespace swale::source {
namespace {

constexpr uint32_t bumped_rows(uint32_t threshold) {
  return threshold == kThresholdAll ? kBucketRows : threshold * kThresholdStep;
}

}  // namespace

void RibbonSolver::begin(uint32_t rows) {
  assert(rows >= kRibbonWidth && rows < (1u << 31));
  rows_ = rows;
  // Zero rows after the last, so that an equation may be shifted and a solution read without asking for the
  // end.
  coefficients_.assign(rows + size_t{kRibbonWidth}, 0);
  values_.assign(rows + size_t{kRibbonWidth}, 0);
}

RibbonSolver::Insert RibbonSolver::insert(const RibbonKey& key, uint64_t start, uint64_t seed) {
  uint64_t coefficients = ribbon_coefficients(key.fraction, seed);
  uint32_t value = key.value;
  uint64_t row = start;
  for (;;) {
    const uint64_t there = coefficients_[row];
    if (there == 0) {
      coefficients_[row] = coefficients;
      values_[row] = value;
      return {true, static_cast<uint32_t>(row)};
    }
    coefficients ^= there;
    value ^= values_[row];
    if (coefficients == 0) return {value == 0, kNoRow};
    const int zeros = std::countr_zero(coefficients);
    coefficients >>= zeros;
    row += static_cast<uint64_t>(zeros);
  }
}

uint32_t RibbonSolver::insert_bucket(std::span<const RibbonKey> keys, uint64_t first_row, uint64_t starts,
                                     uint64_t seed, std::vector<RibbonKey>* bumped) {
  inserted_.clear();
  for (size_t i = keys.size(); i-- > 0;) {
    const uint64_t start = high_product(keys[i].fraction, starts);
    const Insert done = insert(keys[i], start, seed);
    if (done.fits) {
      inserted_.push_back(done.row);
      continue;
    }
    const auto below = static_cast<uint32_t>(start - first_row) / kThresholdStep + 1;
    const uint32_t threshold = std::min(below, kThresholdAll);
    const uint64_t limit = first_row + bumped_rows(threshold);
    // Keys that are in already and begin below the limit are taken out again: they are the last ones
    // inserted, so that nothing was reduced by them but one another.
    size_t end = i + 1;
    while (end < keys.size() && high_product(keys[end].fraction, starts) < limit) {
      const uint32_t row = inserted_[keys.size() - 1 - end];
      if (row != kNoRow) coefficients_[row] = values_[row] = 0;
      ++end;
    }
    bumped->insert(bumped->end(), keys.begin(), keys.begin() + static_cast<ptrdiff_t>(end));
    return threshold;
  }
  return 0;
}

void RibbonSolver::solve_bumping(std::span<const RibbonKey> keys, uint32_t rows, uint64_t seed,
                                 std::string* thresholds, std::vector<RibbonKey>* bumped) {
  begin(rows);
  const uint64_t starts = start_rows(rows);
  const size_t base = thresholds->size();
  thresholds->append(threshold_bytes(rows), '\0');
  size_t first = 0;
  for (uint64_t bucket = 0; bucket * kBucketRows < starts; ++bucket) {
    const uint64_t row = bucket * kBucketRows;
    size_t end = first;
    while (end < keys.size() && high_product(keys[end].fraction, starts) < row + kBucketRows) ++end;
    const uint32_t threshold = insert_bucket(keys.subspan(first, end - first), row, starts, seed, bumped);
    char& packed = (*thresholds)[base + bucket / 2];
    packed = static_cast<char>(packed | static_cast<char>(threshold << bucket % 2 * 4));
    first = end;
  }
}

bool RibbonSolver::solve_all(std::span<const RibbonKey> keys, uint32_t rows, uint64_t seed) {
  begin(rows);
  const uint64_t starts = start_rows(rows);
  return std::all_of(keys.begin(), keys.end(), [&](const RibbonKey& key) {
    return insert(key, high_product(key.fraction, starts), seed).fits;
  });
}

void RibbonSolver::append_rows(uint32_t value_bits, std::string* out) {
  for (uint32_t row = rows_; row-- > 0;) {
    uint64_t coefficients = coefficients_[row];
    if (coefficients == 0) {
      values_[row] = 0;
      continue;
    }
    uint32_t value = values_[row];
    const uint32_t* const at = &values_[row];
    coefficients &= coefficients - 1;  // the row itself
    while (coefficients != 0) {
      value ^= at[std::countr_zero(coefficients)];
      coefficients &= coefficients - 1;
    }
    values_[row] = value;
  }
  out->reserve(out->size() + row_bytes(rows_, value_bits) + kSlackBytes);
  BitWriter writer(out);
  for (uint32_t row = 0; row < rows_; ++row) writer.put(values_[row], value_bits);
  writer.finish();
}

uint32_t ribbon_value(const char* rows, uint64_t start, uint64_t coefficients, uint32_t value_bits) {
  uint64_t value = 0;
  for (; coefficients != 0; coefficients &= coefficients - 1) {
    const uint64_t row = start + static_cast<uint64_t>(std::countr_zero(coefficients));
    value ^= load_bits(rows, row * value_bits, value_bits);
  }
  return static_cast<uint32_t>(value);
}

bool is_bumped(const char* thresholds, uint64_t start) {
  const uint64_t bucket = start / kBucketRows;
  const auto packed = static_cast<uint8_t>(thresholds[bucket / 2]);
  return start % kBucketRows < bumped_rows(packed >> bucket % 2 * 4 & 15u);
}

}  // namespace swale::source
