// RunShape: what the kind, the blocks and the sketch of a run depend on: how many records it has and of which
// sizes.
//
// Threads: a value.
#pragma once

#include <cstdint>

#include "run/format.h"
#include "run/sketch.h"

namespace swale::run {

// Above this waste, a header per record costs less than the space that whole rows leave empty at the end of
// each block.
inline constexpr uint32_t kUniformWasteBytesMax = 128;

struct RunShape {
  uint64_t records = 0;
  uint64_t data_bytes = 0;     // keys and values
  uint64_t encoded_bytes = 0;  // as in record.h
  bool uniform = true;         // all have the sizes below, and all or none are large
  bool large = false;          // the first one is
  uint32_t key_bytes = 0;      // of the first one
  uint32_t value_bytes = 0;

  // Not packed.
  RunKind kind() const {
    const uint32_t row_bytes = key_bytes + value_bytes;
    const bool rows = uniform && !large && row_bytes <= kRowBytesMax;
    return rows && kPayloadBytes % row_bytes <= kUniformWasteBytesMax ? RunKind::kUniform
                                                                      : RunKind::kVariable;
  }
  uint64_t blocks() const {
    if (kind() == RunKind::kVariable)
      return (sizeof(RunHeader) + encoded_bytes + kPayloadBytes - 1) / kPayloadBytes;
    const uint32_t row_bytes = key_bytes + value_bytes;
    const uint64_t rows = header_rows(row_bytes) + records;
    return (rows + rows_per_block(row_bytes) - 1) / rows_per_block(row_bytes);
  }
  // The bytes of arena that its sketch needs.
  size_t sketch_bytes(bool with_tails = false) const {
    return sketch_memory_bytes(records, blocks(), kind(), with_tails);
  }
};

}  // namespace swale::run
