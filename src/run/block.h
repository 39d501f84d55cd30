// Data blocks: seals and verifies them, and finds a record in one.
//
// Threads: free functions. Format: docs/formats/partition.md, "Data log".
// Errors: kCorruption that names file and offset; no byte of a block that failed verification is ever used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "run/format.h"
#include "run/record.h"
#include "run/segment_reader.h"

namespace swale::run {

inline BlockTrailer block_trailer(const char* block) {
  return get_fixed<BlockTrailer>(block + kPayloadBytes);
}

// Writes the trailer, with its checksum, after a finished payload.
void seal_block(char* block, uint32_t seed, BlockNumber block_number, uint32_t first_ordinal, uint32_t count,
                uint32_t first_start);

// Checks size, checksum and identity of one block. `seed` is epoch_seed(partition, epoch_id) of the epoch
// that the block should belong to.
Status verify_block(Bytes block, uint32_t seed, BlockNumber block_number, std::string_view path);

// The same for consecutive blocks.
Status verify_blocks(Bytes blocks, uint32_t seed, BlockNumber first_block_number, std::string_view path);

// Decodes the run header at the start of a run's first block. Checks magic, checksum and the ranges of its
// numbers. Verify the block itself afterwards, with the seed of the header's epoch.
Result<RunHeader> decode_run_header(Bytes block, PartitionNumber partition, BlockNumber block_number,
                                    std::string_view path);

// A walk through the records that start in one block, kept from one candidate to the next: a key with many
// values has many candidates in each block, and these come in order. Then every block is decompressed once
// and its records are parsed once; otherwise each candidate would cost as much as its whole block.
//
// The block is known by its address. Whoever owns the memory of the blocks calls forget before it holds other
// bytes.
class BlockWalk {
 public:
  void forget() { block_ = nullptr; }
  // The packed block at this address has this piece, which its owner keeps: it need not be decompressed.
  void know(const char* block, Bytes piece);
  // The piece of the packed block at this address; empty if the walk is elsewhere. Valid until it moves on.
  Bytes piece_of(const char* block) const { return block_ == block && packed_ ? stream_ : Bytes(); }
  // How many blocks were decompressed since the last call.
  uint64_t take_decompressed() { return std::exchange(decompressed_, 0); }

 private:
  friend class StreamWalker;
  std::vector<char> piece_;      // packed: a block that was decompressed
  Bytes stream_;                 // packed: the block's stream, in piece_ or the owner's
  std::vector<char> spanning_;   // a record that ends in a later block
  const char* block_ = nullptr;  // none: what stands below means nothing
  bool packed_ = false;
  uint32_t next_ = 0;  // the number in the block of the record that starts at at_
  size_t at_ = 0;      // in the stream
  uint64_t decompressed_ = 0;
};

// Matches any key. No key is empty.
inline constexpr Bytes kAnyKey = {};

// Finds the record of a candidate in blocks that were read.
struct RecordMatch {
  // The candidate's record if it has the key (kAnyKey: always), none if the candidate is a false positive.
  // `blocks` are the candidate's block_count blocks, *verified*. The views point into `blocks` or into
  // `walk`, until the next call. kCorruption if the blocks hold no such record: then index and data disagree.
  static Result<std::optional<RecordView>> in_verified(const Candidate& candidate, Bytes blocks, Bytes key,
                                                       BlockWalk* walk, std::string_view path);

  // For a candidate with any_slot(): calls fn for each record with the key that starts in its first block, in
  // order, until fn returns false.
  using MatchFn = std::function<bool(const RecordView&)>;
  static Status each_in_verified(const Candidate& candidate, Bytes blocks, Bytes key, BlockWalk* walk,
                                 std::string_view path, const MatchFn& fn);
};

}  // namespace swale::run
