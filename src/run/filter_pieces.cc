#include "run/filter_pieces.h"

#include <cassert>
#include <cstring>

#include "base/bits.h"
#include "base/coding.h"

namespace swale::run {
namespace {

uint32_t rows_in_block(const RunSketch& run) { return rows_per_block(run.key_bytes + run.value_bytes); }
uint64_t row_of(const RunSketch& run, uint64_t ordinal) {
  return header_rows(run.key_bytes + run.value_bytes) + ordinal;
}

// Walks the records of a piece: their hashes, and the blocks of their last bytes.
class RecordWalk {
 public:
  explicit RecordWalk(const FilterPieceSource& source)
      : run_(*source.run),
        buckets_(run_.buckets.data(), run_.records + (uint64_t{1} << run_.bucket_bits)),
        ends_(run_.ends.data(), run_.ends.size() * 64),
        ordinal_(source.ordinal),
        bucket_bit_(source.bucket_bit),
        end_bit_(source.end_bit) {}

  // The block of the byte before the next record; in a uniform run or at a run's start, the record's block.
  uint32_t block() const {
    return is_stream(run_.kind) ? static_cast<uint32_t>(end_bit_ - ordinal_)
                                : static_cast<uint32_t>(row_of(run_, ordinal_) / rows_in_block(run_));
  }
  // The top bits of the next record's rest, as many as the sketch keeps.
  Hash next() {
    bucket_bit_ = buckets_.after_ones(bucket_bit_, 1);
    const uint64_t bucket = bucket_bit_ - 1 - ordinal_;
    const uint64_t bits =
        (bucket << kRemainderBits | run_.remainders[ordinal_]) << kTailBits | run_.tails[ordinal_];
    if (is_stream(run_.kind)) end_bit_ = ends_.after_ones(end_bit_, 1);
    ++ordinal_;
    return bits << (64 - run_.bucket_bits - kRemainderBits - kTailBits);
  }
  // The block of the last byte of the record that next() returned.
  uint32_t end_block() const {
    return is_stream(run_.kind) ? block()
                                : static_cast<uint32_t>(row_of(run_, ordinal_ - 1) / rows_in_block(run_));
  }

 private:
  const RunSketch& run_;
  const BitSpan buckets_;
  const BitSpan ends_;
  uint64_t ordinal_;
  uint64_t bucket_bit_;
  uint64_t end_bit_;
};

}  // namespace

uint32_t FilterPieceSource::fences() const {
  if (is_stream(run->kind)) return end_bits - records;
  if (records == 0) return 0;
  const uint32_t rows = rows_in_block(*run);
  const uint64_t first = row_of(*run, ordinal);
  return static_cast<uint32_t>((first + records - 1) / rows - first / rows);
}

char* FilterPieceSource::put_header(char* out) const {
  const FilterPieceHeader header{.block = run_block + (records == 0 ? 0 : RecordWalk(*this).block()),
                                 .records = records,
                                 .fences = static_cast<uint16_t>(fences()),
                                 .value_bytes = static_cast<uint16_t>(run->value_bytes),
                                 .key_bytes = run->key_bytes,
                                 .packed = run->kind == RunKind::kPacked ? uint8_t{1} : uint8_t{0},
                                 .reserved = 0};
  put_fixed(out, header);
  return out + sizeof(header);
}

char* FilterPieceSource::put(const BloomShape& shape, char* out) const {
  const size_t filter_bytes = shape.bytes(records);
  std::memset(out, 0, filter_bytes);
  char* fence = out + filter_bytes;
  RecordWalk walk(*this);
  uint32_t block = records == 0 ? 0 : walk.block();
  for (uint32_t i = 0; i < records; ++i) {
    const Hash rest = walk.next();
    BloomProbe(shape, rest).add(out, filter_bytes);
    for (; block < walk.end_block(); ++block, fence += sizeof(uint32_t))
      put_u32(fence, static_cast<uint32_t>(rest >> 32));
  }
  assert(fence == out + bytes(shape));
  return fence;
}

FilterPiece::FilterPiece(const BloomShape& shape, const char* header, const char* body)
    : shape_(shape),
      header_(get_fixed<FilterPieceHeader>(header)),
      body_(body),
      filter_bytes_(shape.bytes(header_.records)) {}

// The number of fences below the prefix, or up to and including it. If the fences do not ascend, the number
// is undefined but not larger than their count.
uint32_t FilterPiece::fences_up_to(uint32_t prefix, bool inclusive) const {
  const char* const fences = body_ + filter_bytes_;
  uint32_t low = 0;
  uint32_t high = header_.fences;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const uint32_t fence = get_u32(fences + sizeof(uint32_t) * size_t{middle});
    if (fence < prefix || (inclusive && fence == prefix)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

FilterPiece::Blocks FilterPiece::blocks_of(Hash rest) const {
  const auto prefix = static_cast<uint32_t>(rest >> 32);
  const uint32_t first = fences_up_to(prefix, false);
  return {first, std::max(first, fences_up_to(prefix, true))};
}

}  // namespace swale::run
