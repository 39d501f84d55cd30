#include "run/run_builder.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/coding.h"
#include "base/copy.h"
#include "base/crc32c.h"
#include "run/block.h"

namespace swale::run {
namespace {

// How many records ahead the arena is prefetched: hash order visits it at random.
constexpr size_t kPrefetchDistance = 16;

bool stored_uniform(const Memtable& memtable) {
  if (!memtable.uniform()) return false;
  const uint32_t row_bytes = memtable.key_bytes() + memtable.value_bytes();
  return row_bytes <= kRowBytesMax && kPayloadBytes % row_bytes <= kUniformWasteBytesMax;
}

RunKind stored_kind(const Memtable& memtable) {
  return stored_uniform(memtable) ? RunKind::kUniform : RunKind::kVariable;
}

}  // namespace

RunBuilder::RunBuilder(Memtable& memtable, RunScratch& scratch, SketchArena& arena,
                       const RunPlacement& placement)
    : RunOutput(memtable, stored_kind(memtable), block_count(memtable), placement),
      memtable_(memtable),
      scratch_(scratch),
      sketch_builder_(&sketch_, arena, placement.with_tails) {}

uint32_t RunBuilder::block_count(const Memtable& memtable) {
  uint64_t blocks = 0;
  if (stored_uniform(memtable)) {
    const uint32_t row_bytes = memtable.key_bytes() + memtable.value_bytes();
    const uint64_t rows = header_rows(row_bytes) + memtable.count();
    blocks = (rows + rows_per_block(row_bytes) - 1) / rows_per_block(row_bytes);
  } else {
    blocks = (sizeof(RunHeader) + memtable.bytes() + kPayloadBytes - 1) / kPayloadBytes;
  }
  assert(blocks <= kRunBlocksMax);
  return static_cast<uint32_t>(blocks);
}

size_t RunBuilder::sketch_bytes(const Memtable& memtable, bool with_tails) {
  return sketch_memory_bytes(memtable.count(), block_count(memtable), stored_kind(memtable), with_tails);
}

size_t RunBuilder::fill(MutableBytes out) {
  assert(out.size() >= kBlockBytes && out.size() % kBlockBytes == 0);
  if (!sorter_) sorter_.emplace(memtable_.entries(), memtable_.digit_counts(), scratch_);
  size_t produced = 0;
  for (; produced < out.size() && !done(); produced += kBlockBytes, ++next_block_) {
    char* const block = out.data() + produced;
    if (next_block_ == 0) std::memcpy(block, &header_, sizeof(header_));
    const uint32_t first_record = next_record_;
    if (header_.kind == RunKind::kUniform) {
      fill_uniform(block);
    } else {
      fill_variable(block);
    }
    if (sketch_builder_.with_tails())
      sketch_builder_.add_tails(sorter_->entries() + first_record, first_record, next_record_ - first_record);
  }
  if (done()) sketch_builder_.finish();
  return produced;
}

void RunBuilder::fill_uniform(char* block) {
  const uint32_t key_bytes = header_.key_bytes;
  const uint32_t row_bytes = key_bytes + header_.value_bytes;
  const size_t encoding_bytes = varint_bytes(key_bytes) + varint_bytes(header_.value_bytes);
  const uint32_t first_row = next_block_ == 0 ? header_rows(row_bytes) : 0;
  const uint32_t count = std::min(rows_per_block(row_bytes) - first_row, header_.records - next_record_);
  const char* const rows = memtable_.arena() + encoding_bytes;
  sorter_->sort_up_to(next_record_ + count + kPrefetchDistance);
  const uint64_t* const entries = sorter_->entries() + next_record_;
  const size_t ahead_max = sorter_->sorted() - next_record_;
  uint64_t digest = 0;
  SketchBuilder sketch = sketch_builder_;  // in registers

  // One loop: sketch and digest are made while the next rows are still on their way (three loops cost 4 ns more).
  char* out = block + size_t{first_row} * row_bytes;
  if (next_block_ == 0)
    std::memset(block + sizeof(header_), 0, size_t{first_row} * row_bytes - sizeof(header_));
  for (uint32_t i = 0; i < count; ++i, out += row_bytes) {
    if (i + kPrefetchDistance < ahead_max) {
      const char* const ahead = rows + (entries[i + kPrefetchDistance] & kEntryOffsetMask);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + row_bytes - 1);
    }
    copy_bytes(out, rows + (entries[i] & kEntryOffsetMask), row_bytes);
    sketch.add(entries[i]);
    digest += swale::record_digest({out, row_bytes}, key_bytes);
  }
  sketch_builder_ = sketch;
  digest_ += digest;
  std::memset(out, 0, static_cast<size_t>(block + kPayloadBytes - out));
  seal_block(block, seed_, first_block_ + next_block_, next_record_, count, first_row * row_bytes);
  next_record_ += count;
}

void RunBuilder::fill_variable(char* block) {
  const uint64_t* const entries = sorter_->entries();
  const uint32_t first_ordinal = next_record_;
  uint32_t first_start = kNoRecordStarts;
  size_t at = next_block_ == 0 ? sizeof(header_) : 0;
  while (at < kPayloadBytes) {
    if (unfinished_.empty()) {
      if (next_record_ == header_.records) break;
      sorter_->sort_up_to(next_record_ + kPrefetchDistance + 1);
      if (next_record_ + kPrefetchDistance < sorter_->sorted()) {
        __builtin_prefetch(memtable_.arena() +
                           (entries[next_record_ + kPrefetchDistance] & kEntryOffsetMask));
      }
      RecordView record;
      const uint64_t entry = entries[next_record_];
      [[maybe_unused]] const RecordParse parse =
          parse_record(memtable_.encoded_from(entry & kEntryOffsetMask), &record);
      assert(parse == RecordParse::kOk && "append took what parse_record gave");
      if (first_start == kNoRecordStarts) first_start = static_cast<uint32_t>(at);
      sketch_builder_.add(entry);
      digest_ += record_digest(record);
      const size_t last_byte = at + record.encoded.size() - 1;
      sketch_builder_.add_end(next_block_ + static_cast<uint32_t>(last_byte / kPayloadBytes));
      unfinished_ = record.encoded;
      ++next_record_;
    }
    const size_t part = std::min(unfinished_.size(), kPayloadBytes - at);
    std::memcpy(block + at, unfinished_.data(), part);
    unfinished_.remove_prefix(part);
    at += part;
  }
  std::memset(block + at, 0, kPayloadBytes - at);
  seal_block(block, seed_, first_block_ + next_block_, first_ordinal, next_record_ - first_ordinal,
             first_start);
}

}  // namespace swale::run
