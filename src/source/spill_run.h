// SpillRun: sorted pairs in a temporary file, for a PairStore that is over its budget. Written once, read
// once, in order.
//
// Format: blocks of kSpillBlockBytes: crc u32 | count u32 | base u64 | codes. Each pair is the Rice code of
// the difference to the hash before (the base before the first), and its source. The checksum covers the
// block's number, too. Files of this format do not outlive their job, so it has no version.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"
#include "source/bit_stream.h"
#include "source/pair.h"

namespace swale::source {

inline constexpr size_t kSpillBlockBytes = 16 * kKiB;

struct SpillRun {
  uint64_t offset = 0;  // in the file
  uint64_t blocks = 0;
  uint32_t rice = 0;
  uint32_t source_bits = 0;

  uint64_t bytes() const { return blocks * kSpillBlockBytes; }
};

class SpillWriter {
 public:
  // `pairs`: how many will come, for the choice of the code.
  SpillWriter(io::File* file, uint64_t offset, uint64_t pairs, uint32_t sources);

  // Pairs ascend over all calls.
  Status add(std::span<const Pair> pairs);
  Result<SpillRun> finish();

 private:
  Status put(Pair pair);
  Status close_block();

  io::File* file_;
  SpillRun run_;
  std::string block_;
  BitWriter writer_;
  uint32_t count_ = 0;
  uint64_t hash_ = 0;  // of the pair before
};

class SpillCursor {
 public:
  SpillCursor(io::File* file, const SpillRun& run);

  // Writes the pairs with hashes below `limit` to *out, and moves *out past them.
  Status take_below(uint64_t limit, Pair** out);

 private:
  Status next();
  Status load_block();

  io::File* file_;
  SpillRun run_;
  std::string block_;
  uint64_t next_block_ = 0;
  uint32_t left_ = 0;  // pairs of the block that are not read yet
  uint64_t bit_ = 0;
  uint64_t hash_ = 0;
  Pair pair_ = 0;  // the next one
  bool begun_ = false;
  bool at_end_ = false;
};

}  // namespace swale::source
