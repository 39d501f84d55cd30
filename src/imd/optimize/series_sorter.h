// SeriesSorter: the records of one stripe in memory, and the series of each of its keys, in the order of
// hashes.
//
// Threads: one at a time. Memory: the rows, and 64 bytes a record.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/series.h"
#include "imd/optimize/stripe_reader.h"

namespace swale::imd {

class SeriesSorter {
 public:
  static constexpr uint64_t kBytesPerRecord = 64;  // beside its row

  // The value that a record points to; a failure ends the pass.
  using ResolveFn = std::function<Result<std::string>(uint32_t index, Bytes key, Bytes stored)>;
  using EmitFn = std::function<Status(Bytes key, Bytes series)>;
  // `resolve` may be empty: pointers stay.
  SeriesSorter(ResolveFn resolve, EmitFn emit);

  // Records of one key come by epoch and then as appended.
  void add(const StripeRecord& record);
  // Gives out the series of all keys, and forgets them.
  Status emit();

 private:
  struct Row {
    Hash hash;
    uint64_t at;  // in rows_
    uint32_t index;
    uint32_t row_bytes;
    uint8_t key_bytes;
    bool large;
  };

  void sort();
  Bytes key_of(const Row& row) const { return {rows_.data() + row.at, row.key_bytes}; }
  Bytes value_of(const Row& row) const {
    return {rows_.data() + row.at + row.key_bytes, row.row_bytes - row.key_bytes};
  }
  Status emit_key(std::span<const Row> rows);

  const ResolveFn resolve_;
  const EmitFn emit_;
  SeriesBuilder builder_;
  Bytes key_;  // whose series builder_ makes
  std::vector<Row> order_;
  std::vector<Row> scratch_;
  std::vector<char> rows_;
};

}  // namespace swale::imd
