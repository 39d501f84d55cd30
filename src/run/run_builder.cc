#include "run/run_builder.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/coding.h"
#include "base/copy.h"
#include "base/crc32c.h"
#include "run/block.h"
#include "run/row_copy.h"

namespace swale::run {

RunBuilder::RunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena,
                       const RunPlacement& placement)
    : RunOutput(memtable.shape(), memtable.shape().kind(), block_count(memtable), placement),
      memtable_(memtable),
      scratch_(scratch),
      sketch_builder_(&sketch_, arena, placement.with_tails) {}

uint32_t RunBuilder::block_count(const Memtable& memtable) {
  const uint64_t blocks = memtable.shape().blocks();
  assert(blocks <= kRunBlocksMax);
  return static_cast<uint32_t>(blocks);
}

size_t RunBuilder::sketch_bytes(const Memtable& memtable, bool with_tails) {
  return memtable.shape().sketch_bytes(with_tails);
}

size_t RunBuilder::fill(MutableBytes out) {
  assert(out.size() >= kBlockBytes && out.size() % kBlockBytes == 0);
  if (!sorter_) sorter_.emplace(memtable_, scratch_);
  size_t produced = 0;
  for (; produced < out.size() && !done(); produced += kBlockBytes, ++next_block_) {
    char* const block = out.data() + produced;
    if (next_block_ == 0) std::memcpy(block, &header_, sizeof(header_));
    if (header_.kind == RunKind::kUniform) {
      fill_uniform(block);
    } else {
      fill_variable(block);
    }
  }
  if (done()) sketch_builder_.finish();
  return produced;
}

void RunBuilder::fill_uniform(char* block) {
  const uint32_t key_bytes = header_.key_bytes;
  const uint32_t row_bytes = key_bytes + header_.value_bytes;
  const uint32_t first_row = next_block_ == 0 ? header_rows(row_bytes) : 0;
  const uint32_t count = std::min(rows_per_block(row_bytes) - first_row, header_.records - next_record_);
  char* const first = block + size_t{first_row} * row_bytes;
  if (next_block_ == 0)
    std::memset(block + sizeof(header_), 0, static_cast<size_t>(first - block) - sizeof(header_));
  const RowCopy copy{.rows = memtable_.rows(),
                     .entries = sorter_->peek(count).data(),
                     .count = count,
                     .row_bytes = row_bytes,
                     .key_bytes = key_bytes,
                     .out = first};
  digest_ += copy_rows(copy, &sketch_builder_, &sorter_->fetcher());
  if (sketch_builder_.with_tails()) sketch_builder_.add_tails(copy.entries, next_record_, count);
  sorter_->pop(count);
  char* const out = first + size_t{count} * row_bytes;
  std::memset(out, 0, static_cast<size_t>(block + kPayloadBytes - out));
  seal_block(block, seed_, first_block_ + next_block_, next_record_, count, first_row * row_bytes);
  next_record_ += count;
}

// Makes the next record the unfinished one. Its first byte will lie at `at` of the block's payload.
void RunBuilder::begin_record(size_t at) {
  const uint64_t entry = sorter_->peek(1).front();
  sorter_->pop(1);
  const Memtable::Row row = memtable_.row(entry);
  char* const sizes_end = put_varint(put_varint(sizes_, row.view.key.size()), row.value_code);
  unfinished_ = {Bytes(sizes_, static_cast<size_t>(sizes_end - sizes_)), row.view.row()};
  sketch_builder_.add(entry);
  if (sketch_builder_.with_tails()) sketch_builder_.add_tails(&entry, next_record_, 1);
  sorter_->fetcher().fetch(Memtable::kRowHeadBytes + row.view.row().size());
  digest_ += record_digest(row.view);
  const size_t last_byte = at + unfinished_[0].size() + unfinished_[1].size() - 1;
  sketch_builder_.add_end(next_block_ + static_cast<uint32_t>(last_byte / kPayloadBytes));
  ++next_record_;
}

void RunBuilder::fill_variable(char* block) {
  const uint32_t first_ordinal = next_record_;
  uint32_t first_start = kNoRecordStarts;
  size_t at = next_block_ == 0 ? sizeof(header_) : 0;
  while (at < kPayloadBytes) {
    if (unfinished_[0].empty() && unfinished_[1].empty()) {
      if (next_record_ == header_.records) break;
      if (first_start == kNoRecordStarts) first_start = static_cast<uint32_t>(at);
      begin_record(at);
    }
    Bytes& piece = unfinished_[unfinished_[0].empty() ? 1 : 0];
    const size_t part = std::min(piece.size(), kPayloadBytes - at);
    copy_bytes(block + at, piece.data(), part);
    piece.remove_prefix(part);
    at += part;
  }
  std::memset(block + at, 0, kPayloadBytes - at);
  seal_block(block, seed_, first_block_ + next_block_, first_ordinal, next_record_ - first_ordinal,
             first_start);
}

}  // namespace swale::run
