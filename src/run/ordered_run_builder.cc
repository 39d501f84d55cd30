#include "run/ordered_run_builder.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/copy.h"
#include "base/hash.h"
#include "run/block.h"

namespace swale::run {

OrderedRunBuilder::OrderedRunBuilder(const OrderedRecords& records, SketchArena& arena,
                                     const RunPlacement& placement)
    : RunOutput(records.shape(), records.shape().kind(), static_cast<uint32_t>(records.shape().blocks()),
                placement),
      sketch_builder_(&sketch_, arena),
      records_{records.chunks()},
      copied_{records.chunks()} {
  assert(!placement.with_tails);
  digest_ = records.digest();
}

size_t OrderedRunBuilder::fill(MutableBytes out) {
  assert(out.size() >= kBlockBytes && out.size() % kBlockBytes == 0);
  size_t produced = 0;
  for (; produced < out.size() && !done(); produced += kBlockBytes, ++next_block_) {
    char* const block = out.data() + produced;
    if (next_block_ == 0) std::memcpy(block, &header_, sizeof(header_));
    header_.kind == RunKind::kUniform ? fill_uniform(block) : fill_variable(block);
  }
  if (done()) sketch_builder_.finish();
  return produced;
}

// Another core wrote the bytes: those of the next block are fetched while this one is made.
void OrderedRunBuilder::Cursor::fetch_block() const {
  constexpr size_t kLineBytes = 64;
  if (chunks.empty()) return;
  const Bytes bytes = rest();
  for (size_t line = kBlockBytes; line < std::min(2 * kBlockBytes, bytes.size()); line += kLineBytes)
    __builtin_prefetch(bytes.data() + line);
}

// The next record comes into the sketch. Nobody but this process has had its bytes.
RecordView OrderedRunBuilder::take_record() {
  RecordView record;
  [[maybe_unused]] const RecordParse parse = parse_record(records_.rest(), &record);
  assert(parse == RecordParse::kOk);
  records_.skip(record.encoded.size());
  sketch_builder_.add(hash_bytes(record.key));
  ++next_record_;
  return record;
}

// The next records without what says their sizes: all have the same. Returns the end of the copies.
char* OrderedRunBuilder::copy_rows(uint32_t count, char* out) {
  constexpr size_t kInlineBytesMax = 128;  // beyond, a call of memcpy takes less than half the instructions
  const size_t key_bytes = header_.key_bytes;
  const size_t row_bytes = key_bytes + header_.value_bytes;
  const size_t encoded_bytes = encoded_record_bytes(key_bytes, header_.value_bytes);
  next_record_ += count;
  while (count > 0) {
    const Bytes rest = records_.rest();
    const auto here = static_cast<uint32_t>(std::min<size_t>(count, rest.size() / encoded_bytes));
    const char* row = rest.data() + (encoded_bytes - row_bytes);
    for (uint32_t i = 0; i < here; ++i, row += encoded_bytes, out += row_bytes) {
      sketch_builder_.add(hash_bytes({row, key_bytes}));
      row_bytes <= kInlineBytesMax ? copy_bytes(out, row, row_bytes)
                                   : static_cast<void>(std::memcpy(out, row, row_bytes));
    }
    records_.skip(here * encoded_bytes);
    count -= here;
  }
  return out;
}

void OrderedRunBuilder::fill_uniform(char* block) {
  const uint32_t row_bytes = header_.key_bytes + header_.value_bytes;
  const uint32_t first_row = next_block_ == 0 ? header_rows(row_bytes) : 0;
  const uint32_t first_ordinal = next_record_;
  const uint32_t count = std::min(rows_per_block(row_bytes) - first_row, header_.records - next_record_);
  char* out = block + size_t{first_row} * row_bytes;
  if (next_block_ == 0)
    std::memset(block + sizeof(header_), 0, static_cast<size_t>(out - block) - sizeof(header_));
  records_.fetch_block();
  out = copy_rows(count, out);
  std::memset(out, 0, static_cast<size_t>(block + kPayloadBytes - out));
  seal_block(block, seed_, first_block_ + next_block_, first_ordinal, count, first_row * row_bytes);
}

void OrderedRunBuilder::fill_variable(char* block) {
  const uint64_t begin = uint64_t{next_block_} * kPayloadBytes;
  const uint32_t first_ordinal = next_record_;
  uint32_t first_start = kNoRecordStarts;
  if (next_start_ < begin + kPayloadBytes && next_record_ < header_.records)
    first_start = static_cast<uint32_t>(next_start_ - begin);
  copied_.fetch_block();
  while (next_start_ < begin + kPayloadBytes && next_record_ < header_.records) {
    next_start_ += take_record().encoded.size();
    sketch_builder_.add_end(static_cast<uint32_t>((next_start_ - 1) / kPayloadBytes));
  }
  size_t at = next_block_ == 0 ? sizeof(header_) : 0;
  while (at < kPayloadBytes && !copied_.chunks.empty()) {
    const Bytes part = copied_.rest().substr(0, kPayloadBytes - at);
    std::memcpy(block + at, part.data(), part.size());
    at += part.size();
    copied_.skip(part.size());
  }
  std::memset(block + at, 0, kPayloadBytes - at);
  seal_block(block, seed_, first_block_ + next_block_, first_ordinal, next_record_ - first_ordinal,
             first_start);
}

}  // namespace swale::run
