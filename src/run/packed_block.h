// Blocks of packed runs: each holds one piece of the run's stream of encoded records, compressed so that it fits.
//
// Format: the piece begins at payload byte 0 (64 in a run's first block, behind the run header) and its trailer stands in
//   the payload's last 8 bytes. first_start of the block's trailer counts from the front of the piece as it was before
//   compression. docs/formats/partition.md, "Packed".
// Threads: free functions. Errors: bytes that make no sense are refused; nothing outside of the buffers is read or
//   written, whatever they are.
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

// What a block has for its piece. Pieces but the last have at least so many bytes, or end with a record.
inline constexpr size_t kPackedBytesMax = kPayloadBytes - sizeof(PackedTrailer);
inline constexpr size_t kPieceBytesMax = 32 * kKiB;  // what a query decompresses for one record
// A record spans few enough blocks, also if the first of them begins behind a run header.
static_assert(1 + (kEncodedRecordBytesMax + kPackedBytesMax - 2) / kPackedBytesMax <= 6);

inline PackedTrailer packed_trailer(const char* block) {
  return get_fixed<PackedTrailer>(block + kPackedBytesMax);
}

// Appends the block's piece, decompressed, to `out`. Requires a block (4,096 bytes) of a packed run, verified.
Status append_piece(Bytes block, uint64_t block_number, std::string_view path, std::vector<char>* out);

// What a block of a variable or packed run has of the stream, so that first_start counts from its front: the payload,
// or the piece, which is put into `scratch`.
Result<Bytes> stream_of_block(Bytes block, bool packed, uint64_t block_number, std::string_view path,
                              std::vector<char>* scratch);

}  // namespace swale::run
