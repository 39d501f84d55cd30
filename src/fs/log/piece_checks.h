// PieceChecks: checksums that the server makes of what it writes to its own log, for programs in its mount,
// as it copies: the bytes are in the processor's cache then. ServedLog::settle joins them to those of blocks,
// which it read from memory for before (130 us a MiB; a copy with its checksum costs no more than a plain
// one), and which somebody may have changed meanwhile.
//
//   LogWriter::append: copy() ─► the write is published ─► settle(): of_block() ─► the chunk goes: forget()
//
// Pieces below LogWriter::kCopierMin are not noted: of_block reads them where they stand, as it does what
// lies between pieces, and all where too many pieces share a block.
//
// Threads: copy() by any, also several at a time in a chunk; the other calls by one thread at a time,
// of_block when the writes of that block were published, forget when nobody can write in the slot.
// Memory: kPartsMax words of 8 bytes for each block of 64 KiB that the log may have: 800 KB for 256 slots.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "fs/log/log_format.h"
#include "fs/log/log_writer.h"

namespace swale::fs {

class PieceChecks {
 public:
  static constexpr uint32_t kPartsMax = 6;  // of a block: pieces that begin, end or lie in it

  PieceChecks(uint32_t slots, uint32_t chunk_bytes);

  // For LogWriter::copy_by.
  PieceCopy copier() noexcept;
  void copy(uint32_t slot, uint32_t place, char* to, const char* from, uint32_t bytes) noexcept;

  // Of block `index` of the chunk in `slot`, which stands in `block`.
  uint32_t of_block(uint32_t slot, uint64_t index, Bytes block) const;
  // Call before a chunk begins in the slot.
  void forget(uint32_t slot) noexcept;

 private:
  // Of bytes of one block, in a word: checksum << 32 | (length - 1) << 16 | where it begins. 0: none.
  struct Part {
    uint32_t begin = 0, length = 0, crc = 0;
    static Part of(uint64_t word) {
      return {static_cast<uint32_t>(word & 0xffff), static_cast<uint32_t>(word >> 16 & 0xffff) + 1,
              static_cast<uint32_t>(word >> 32)};
    }
    uint64_t packed() const { return uint64_t{crc} << 32 | uint64_t{length - 1} << 16 | begin; }
  };
  std::atomic<uint64_t>* parts_of(uint32_t slot, uint64_t index) const {
    return parts_.get() + (slot * blocks_ + index) * kPartsMax;
  }
  void note(uint32_t slot, uint32_t index, const Part& part) noexcept;

  const uint64_t blocks_;  // of a slot
  const std::unique_ptr<std::atomic<uint64_t>[]> parts_;
};

}  // namespace swale::fs
