#include "run/segment_builder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/bits.h"
#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {
namespace {

// A slice longer than the stride costs its readers one more read, so normally the stride is the longest
// slice. If a few slices are far longer than the others (hot keys), padding all to the longest would waste
// more than it saves: slices longer than this factor times the mean overflow, and the others decide the
// stride.
constexpr uint64_t kStrideOverMeanNum = 115;
constexpr uint64_t kStrideOverMeanDen = 100;

// The power of two that is nearest on a logarithmic scale. Requires n >= 1; n < 2^31 in all uses, so the
// square fits.
uint32_t nearest_power_bits(uint64_t n) {
  const auto floor_bits = static_cast<uint32_t>(std::bit_width(n)) - 1;
  return n * n >= uint64_t{2} << 2 * floor_bits ? floor_bits + 1 : floor_bits;
}

size_t bytes_for(uint64_t bits) { return static_cast<size_t>((bits + 7) / 8); }

// Copies bits [from, from + count) of `source` to `out`, from bit 0 on, as whole bytes padded by zeros.
void copy_bits(const BitSpan& source, uint64_t from, uint64_t count, char* out) {
  for (uint64_t done = 0; done < count; done += 64) {
    uint64_t word = source.load(from + done);
    const uint64_t left = count - done;
    if (left < 64) word &= (uint64_t{1} << left) - 1;
    std::memcpy(out + done / 8, &word, std::min<size_t>(8, bytes_for(left)));
  }
}

BitSpan bucket_span(const RunSketch& sketch) {
  return {sketch.buckets.data(), sketch.records + (uint64_t{1} << sketch.bucket_bits)};
}
BitSpan end_span(const RunSketch& sketch) { return {sketch.ends.data(), sketch.ends.size() * 64}; }

}  // namespace

SegmentBuilder::SegmentBuilder(std::span<const RunSketch> sketches, const SegmentParams& params)
    : params_(params) {
  segment_.data_block = params.data_block;
  segment_.epoch_id = params.epoch_id;
  segment_.epoch = params.epoch;
  segment_.data_blocks = params.data_blocks;
  segment_.runs = static_cast<uint32_t>(sketches.size());
  segment_.way = params.way;
  segment_.ways = params.ways;
  walks_.reserve(sketches.size());
  for (const RunSketch& sketch : sketches) {
    assert(sketch.first_block >= params.data_block &&
           sketch.first_block + sketch.blocks <= params.data_block + params.data_blocks);
    segment_.records += sketch.records;
    walks_.push_back({.sketch = &sketch, .bucket_bits = 0});
  }
  seed_ = segment_seed(params.partition, segment_);
  if (sketches.empty()) {
    phase_ = Phase::kDone;
    return;
  }
  const bool transposed = params.layout.index != IndexKind::kPapers;
  assert(transposed || sketches.size() == 1);
  segment_.slice_bits = static_cast<uint8_t>(
      std::min(transposed ? kSliceBitsMax : 0,
               nearest_power_bits(std::max<uint64_t>(1, segment_.records / kSliceRecordsGoal))));
  for (RunWalk& walk : walks_) {
    walk.bucket_bits = std::clamp<uint32_t>(natural_bucket_bits(walk.sketch->records), segment_.slice_bits,
                                            walk.sketch->bucket_bits);
  }
  params.layout.filtered() ? choose_filters() : choose_form();
  for (const RunSketch& sketch : sketches) {
    if (sketch.kind == RunKind::kPacked) segment_.flags |= kPackedSegment;
  }
  measure();
}

void SegmentBuilder::choose_form() {
  const RunSketch& first = *walks_.front().sketch;
  for (const RunWalk& walk : walks_) {
    const RunSketch& run = *walk.sketch;
    if (run.kind != RunKind::kUniform || run.key_bytes != first.key_bytes ||
        run.value_bytes != first.value_bytes) {
      return;
    }
    const uint64_t rows = rows_per_block(run.key_bytes + run.value_bytes);
    const uint64_t end_row = (run.first_block - params_.data_block + run.blocks) * rows;
    if (end_row > std::numeric_limits<uint32_t>::max()) return;
  }
  segment_.flags = kUniformSegment;
  segment_.key_bytes = first.key_bytes;
  segment_.value_bytes = first.value_bytes;
}

void SegmentBuilder::choose_filters() {
  filters_ = {.blocked = params_.layout.index == IndexKind::kBlockedBloom, .bits = params_.layout.bloom_bits};
  segment_.flags = filters_.blocked ? kBlockedBloomSegment : kBloomSegment;
  segment_.filter_bits = static_cast<uint8_t>(filters_.bits);
}

void SegmentBuilder::RunWalk::step(uint32_t slice_bits) {
  const uint64_t buckets = uint64_t{1} << (sketch->bucket_bits - slice_bits);
  ordinal += piece_records;
  piece_bit = bit;
  bit = bucket_span(*sketch).after_zeros(bit, buckets);
  piece_records = static_cast<uint32_t>(bit - piece_bit - buckets);
  if (variable()) {
    piece_end_bit = end_bit;
    end_bit = end_span(*sketch).after_ones(end_bit, piece_records);
    piece_end_bits = static_cast<uint32_t>(end_bit - piece_end_bit);
  }
}

void SegmentBuilder::restart_walks() {
  for (RunWalk& walk : walks_) walk = {.sketch = walk.sketch, .bucket_bits = walk.bucket_bits};
  next_slice_ = 0;
}

size_t SegmentBuilder::bucket_bytes(const RunWalk& walk) const {
  return bytes_for(walk.piece_records + (uint64_t{1} << (walk.bucket_bits - segment_.slice_bits)));
}

uint32_t SegmentBuilder::slice_bytes() const {
  const bool uniform = (segment_.flags & kUniformSegment) != 0;
  size_t bytes = sizeof(SliceHeader);
  for (const RunWalk& walk : walks_) {
    if (is_filter_segment(segment_)) {
      bytes += sizeof(FilterPieceHeader) + filter_piece(walk).bytes(filters_);
      continue;
    }
    bytes += uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
    bytes += bucket_bytes(walk) + walk.piece_records + bytes_for(walk.piece_end_bits);
  }
  assert(bytes <= std::numeric_limits<uint32_t>::max());
  return static_cast<uint32_t>(bytes);
}

void SegmentBuilder::measure() {
  std::vector<uint32_t> lengths(size_t{1} << segment_.slice_bits);
  for (uint32_t& length : lengths) {
    for (RunWalk& walk : walks_) walk.step(segment_.slice_bits);
    length = slice_bytes();
  }
  restart_walks();
  choose_stride(lengths);
  uint64_t units = 0;
  for (const uint32_t length : lengths) {
    if (length > segment_.stride)
      units += (4 + uint64_t{length} - segment_.stride + kStrideUnit - 1) / kStrideUnit;
  }
  assert(units <= std::numeric_limits<uint32_t>::max());
  segment_.overflow_units = static_cast<uint32_t>(units);
  buffer_.resize(std::max(*std::max_element(lengths.begin(), lengths.end()), segment_.stride) +
                 size_t{kStrideUnit});
}

void SegmentBuilder::choose_stride(const std::vector<uint32_t>& lengths) {
  uint64_t total = 0;
  for (const uint32_t length : lengths) total += length;
  const uint64_t cap = total * kStrideOverMeanNum / kStrideOverMeanDen / lengths.size();
  uint32_t stride = 0;  // the longest slice that the cap lets pass; the shortest slice does in any case
  for (const uint32_t length : lengths) stride = length <= cap ? std::max(stride, length) : stride;
  // A single slice has no successor, so its stride is rounded to the smaller unit.
  segment_.stride = static_cast<uint32_t>(round_up(stride, lengths.size() == 1 ? kIndexUnit : kStrideUnit));
}

char* SegmentBuilder::put_piece_header(const RunWalk& walk, char* out) const {
  const RunSketch& run = *walk.sketch;
  const uint64_t run_block = run.first_block - params_.data_block;
  const uint32_t bits = walk.bucket_bits - segment_.slice_bits;
  const uint32_t records_bucket_bits = walk.piece_records | bits << 24;
  if ((segment_.flags & kUniformSegment) != 0) {
    const uint32_t row_bytes = run.key_bytes + run.value_bytes;
    const UniformPieceHeader header{
        .virtual_ordinal = static_cast<uint32_t>(run_block * rows_per_block(row_bytes) +
                                                 header_rows(row_bytes) + walk.ordinal),
        .records_bucket_bits = records_bucket_bits};
    put_fixed(out, header);
    return out + sizeof(header);
  }
  // After the ones of all earlier records, the bit position is their number plus the number of blocks passed.
  const uint64_t blocks_before = walk.variable() ? walk.piece_end_bit - walk.ordinal : 0;
  const MixedPieceHeader header{
      .block = static_cast<uint32_t>(run_block + blocks_before),
      .ordinal = static_cast<uint32_t>(walk.ordinal),
      .records_bucket_bits = records_bucket_bits,
      .value_bytes =
          static_cast<uint16_t>(walk.variable() ? walk.piece_end_bits - walk.piece_records : run.value_bytes),
      .key_bytes = run.key_bytes,
      .packed = run.kind == RunKind::kPacked ? uint8_t{1} : uint8_t{0}};
  put_fixed(out, header);
  return out + sizeof(header);
}

void SegmentBuilder::put_fingerprints(const RunWalk& walk, uint32_t slice, char* bucket_array,
                                      char* remainders) const {
  const RunSketch& run = *walk.sketch;
  const uint32_t coarser_by = run.bucket_bits - walk.bucket_bits;
  if (coarser_by == 0) {
    copy_bits(bucket_span(run), walk.piece_bit, walk.bit - walk.piece_bit, bucket_array);
    std::memcpy(remainders, run.remainders.data() + walk.ordinal, walk.piece_records);
    return;
  }
  std::memset(bucket_array, 0, bucket_bytes(walk));
  const uint64_t first_bucket = uint64_t{slice} << (walk.bucket_bits - segment_.slice_bits);
  const BitSpan bits = bucket_span(run);
  uint64_t at = walk.piece_bit;
  for (uint32_t i = 0; i < walk.piece_records; ++i) {
    at = bits.after_ones(at, 1);
    const uint64_t ordinal = walk.ordinal + i;
    const uint64_t fine_bucket = at - 1 - ordinal;
    const uint64_t fingerprint = (fine_bucket << kRemainderBits | run.remainders[ordinal]) >> coarser_by;
    const uint64_t bit = (fingerprint >> kRemainderBits) - first_bucket + i;
    bucket_array[bit / 8] = static_cast<char>(bucket_array[bit / 8] | 1 << bit % 8);
    remainders[i] = static_cast<char>(fingerprint & 0xff);
  }
}

FilterPieceSource SegmentBuilder::filter_piece(const RunWalk& walk) const {
  return {.run = walk.sketch,
          .run_block = static_cast<uint32_t>(walk.sketch->first_block - params_.data_block),
          .ordinal = walk.ordinal,
          .records = walk.piece_records,
          .bucket_bit = walk.piece_bit,
          .end_bit = walk.piece_end_bit,
          .end_bits = walk.piece_end_bits};
}

void SegmentBuilder::put_filter_pieces(char* out) const {
  for (const RunWalk& walk : walks_) out = filter_piece(walk).put_header(out);
  for (const RunWalk& walk : walks_) out = filter_piece(walk).put(filters_, out);
}

void SegmentBuilder::put_pieces(uint32_t slice, uint32_t total_bytes) {
  char* out = buffer_.data() + sizeof(SliceHeader);
  for (const RunWalk& walk : walks_) out = put_piece_header(walk, out);
  size_t record_count = 0;
  for (const RunWalk& walk : walks_) record_count += walk.piece_records;
  char* remainders = buffer_.data() + total_bytes - record_count;
  for (const RunWalk& walk : walks_) {
    put_fingerprints(walk, slice, out, remainders);
    out += bucket_bytes(walk);
    remainders += walk.piece_records;
    copy_bits(end_span(*walk.sketch), walk.piece_end_bit, walk.piece_end_bits, out);
    out += bytes_for(walk.piece_end_bits);
  }
}

// Puts the whole slice (from byte 0) into buffer_, padded by zeros to the stride if shorter.
void SegmentBuilder::build_slice(uint32_t slice) {
  for (RunWalk& walk : walks_) walk.step(segment_.slice_bits);
  const uint32_t total_bytes = slice_bytes();
  if (is_filter_segment(segment_)) {
    put_filter_pieces(buffer_.data() + sizeof(SliceHeader));
  } else {
    put_pieces(slice, total_bytes);
  }
  const bool overflows = total_bytes > segment_.stride;
  SliceHeader header{.crc32c = 0,
                     .total_bytes = total_bytes,
                     .overflow_unit = overflows ? next_overflow_unit_ : 0,
                     .slice = slice};
  put_fixed(buffer_.data(), header);
  header.crc32c =
      crc32c_extend(seed_, {buffer_.data() + 4, std::min(total_bytes, segment_.stride) - size_t{4}});
  put_u32(buffer_.data(), header.crc32c);
  if (overflows) {
    const uint64_t bytes = 4 + uint64_t{total_bytes} - segment_.stride;
    next_overflow_unit_ += static_cast<uint32_t>((bytes + kStrideUnit - 1) / kStrideUnit);
  } else {
    std::memset(buffer_.data() + total_bytes, 0, segment_.stride - total_bytes);
  }
}

bool SegmentBuilder::next_chunk() {
  const uint32_t slices = uint32_t{1} << segment_.slice_bits;
  if (phase_ == Phase::kSlices) {
    if (next_slice_ < slices) {
      build_slice(next_slice_++);
      chunk_ = {buffer_.data(), segment_.stride};
      return true;
    }
    phase_ = segment_.overflow_units == 0 ? Phase::kDone : Phase::kOverflows;
    restart_walks();
    next_overflow_unit_ = 0;
  }
  while (phase_ == Phase::kOverflows && next_slice_ < slices) {
    const uint32_t slice = next_slice_++;
    build_slice(slice);
    const uint32_t total_bytes = get_u32(buffer_.data() + offsetof(SliceHeader, total_bytes));
    if (total_bytes <= segment_.stride) continue;
    // The overflow: u32 crc32c (segment_seed, slice number, bytes) | bytes | zeros up to 64. The checksum
    // overwrites the slice's last four bytes inside the stride, which were written before.
    char* const start = buffer_.data() + segment_.stride - 4;
    const uint32_t rest = total_bytes - segment_.stride;
    char number[4];
    put_u32(number, slice);
    put_u32(start, crc32c_extend(crc32c_extend(seed_, {number, 4}), {start + 4, rest}));
    const size_t padded = round_up(4 + rest, kStrideUnit);
    std::memset(start + 4 + rest, 0, padded - 4 - rest);
    chunk_ = {start, padded};
    return true;
  }
  phase_ = Phase::kDone;
  return false;
}

size_t SegmentBuilder::fill(MutableBytes out) {
  assert(out.size() >= kIndexPageBytes && out.size() % kIndexPageBytes == 0);
  size_t produced = 0;
  const size_t wanted = std::min<uint64_t>(out.size(), size_bytes() - produced_bytes_);
  while (produced < wanted) {
    if (chunk_.empty() && !next_chunk()) {
      std::memset(out.data() + produced, 0, wanted - produced);
      produced = wanted;
      break;
    }
    const size_t part = std::min(chunk_.size(), wanted - produced);
    std::memcpy(out.data() + produced, chunk_.data(), part);
    chunk_.remove_prefix(part);
    produced += part;
  }
  produced_bytes_ += produced;
  return produced;
}

SegmentRecord SegmentBuilder::record(uint64_t index_offset) const {
  assert(index_offset == segment_offset(index_offset, size_bytes()));
  SegmentRecord record = segment_;
  record.index_offset = index_offset;
  return record;
}

}  // namespace swale::run
