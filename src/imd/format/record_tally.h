// RecordTally: how many records, their bytes and a digest that does not depend on their order.
#pragma once

#include <cstdint>

namespace swale::imd {

// Counts that must agree between those who append and those who index.
struct RecordTally {
  uint64_t records = 0;
  uint64_t data_bytes = 0;  // keys and values
  uint64_t digest = 0;      // sum of record_digest, modulo 2^64

  void add(const RecordTally& other) {
    records += other.records;
    data_bytes += other.data_bytes;
    digest += other.digest;
  }
  bool operator==(const RecordTally&) const = default;
};

}  // namespace swale::imd
