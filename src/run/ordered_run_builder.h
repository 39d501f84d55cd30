// OrderedRunBuilder: turns OrderedRecords into the blocks of one run, as RunBuilder does with a memtable; the
// blocks are the same.
//
//   chunks ─► copied once, into payloads ─► trailer, crc32c ─► whole blocks
//
// The sketch is made in the same pass. The digest is the one that the chunks have: it is computed where a
// record is made, not again.
// Threads: one at a time; the records and the arena must outlive the run.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "run/ordered_records.h"
#include "run/run_output.h"
#include "run/sketch.h"

namespace swale::run {

class OrderedRunBuilder final : public RunOutput {
 public:
  // Requires records, arena.fits(records.shape().sketch_bytes()) and no tails.
  OrderedRunBuilder(const OrderedRecords& records, SketchArena& arena, const RunPlacement& placement);

  size_t fill(MutableBytes out) override;

 private:
  // A place in the records' bytes.
  struct Cursor {
    std::span<const ChunkPool::Chunk> chunks;  // from the one that it is in
    size_t at = 0;

    Bytes rest() const { return chunks.front()->bytes().substr(at); }
    void skip(size_t bytes) {
      at += bytes;
      if (at < chunks.front()->bytes().size()) return;
      chunks = chunks.subspan(1);
      at = 0;
    }
    void fetch_block() const;
  };

  void fill_uniform(char* block);
  char* copy_rows(uint32_t count, char* out);
  void fill_variable(char* block);
  RecordView take_record();

  SketchBuilder sketch_builder_;
  Cursor records_;  // the next record
  Cursor copied_;   // variable runs: what comes into the next block
  uint32_t next_record_ = 0;
  uint64_t next_start_ = sizeof(RunHeader);  // variable runs: of the next record, in all payloads
};

}  // namespace swale::run
