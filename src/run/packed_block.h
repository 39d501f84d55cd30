// Blocks of packed runs: each holds one compressed piece of the run's stream of encoded records.
//
// Format: the piece begins at payload byte 0 (64 in a run's first block, after the run header); its trailer
// is the
//   payload's last 8 bytes. first_start of the block's trailer is an offset in the piece before compression.
//   docs/formats/partition.md, "Packed".
// Threads: free functions. Errors: invalid bytes are refused; nothing outside the buffers is read or written,
// whatever
//   the bytes are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/codec.h"
#include "base/status.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::run {

// The space of a block for its piece. Every piece but the last has at least so many bytes, or ends with a
// record.
inline constexpr size_t kPackedBytesMax = kPayloadBytes - sizeof(PackedTrailer);
inline constexpr size_t kPieceBytesMax = 32 * kKiB;  // what a query decompresses for one record
// A record spans few enough blocks, even if it begins directly after a run header.
static_assert(1 + (kEncodedRecordBytesMax + kPackedBytesMax - 2) / kPackedBytesMax <= 6);

inline PackedTrailer packed_trailer(const char* block) {
  return get_fixed<PackedTrailer>(block + kPackedBytesMax);
}

// Appends the block's piece, decompressed, to `out`. Requires a block (4,096 bytes) of a packed run,
// verified.
Status append_piece(Bytes block, BlockNumber block_number, std::string_view path, std::vector<char>* out);

// The part of the stream in a block of a variable or packed run; first_start is an offset in it. It is the
// payload, or the decompressed piece in `scratch`.
Result<Bytes> stream_of_block(Bytes block, bool packed, BlockNumber block_number, std::string_view path,
                              std::vector<char>* scratch);

}  // namespace swale::run
