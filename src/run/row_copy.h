// Copying rows of one size from a memtable into a block, in hash order: the inner loop of making a run. The
// same pass adds each row to the sketch and to the digest.
//
// For rows of 16 to 143 bytes there is a separate loop for each number of 16-byte pairs, so that copy and
// digest are straight-line code: 72 instructions for a row of 48 bytes; loops over its words took 122.
// Threads: pure function of its arguments.
#pragma once

#include <cstdint>

#include "run/memtable.h"
#include "run/sketch.h"

namespace swale::run {

struct RowCopy {
  const char* rows;         // of the memtable
  const uint64_t* entries;  // `count` of them
  uint32_t count;
  uint32_t row_bytes;  // key and value
  uint32_t key_bytes;
  char* out;  // count * row_bytes
};

// Returns the sum of the rows' digests. Advances the fetcher by the number of bytes copied.
uint64_t copy_rows(const RowCopy& copy, SketchBuilder* sketch, Memtable::RowFetcher* fetcher);

}  // namespace swale::run
