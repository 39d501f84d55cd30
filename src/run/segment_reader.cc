#include "run/segment_reader.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {

std::optional<SliceLocation> locate_slice(const SegmentRecord& segment, Hash rest) {
  if (segment.runs == 0 || (segment.flags & kAuxiliarySegment) != 0) return std::nullopt;
  const uint32_t slice =
      segment.slice_bits == 0 ? 0 : static_cast<uint32_t>(rest >> (64 - uint32_t{segment.slice_bits}));
  return slice_location(segment, slice);
}

SliceLocation slice_location(const SegmentRecord& segment, uint32_t slice) {
  assert(slice >> segment.slice_bits == 0);
  return {.offset = segment.index_offset + uint64_t{segment.stride} * slice,
          .bytes = segment.stride,
          .slice = slice};
}

Status Slice::damaged(std::string_view problem) const {
  return corruption("{}: slice {} at offset {} of epoch {}: {}; run `swale verify`", path_, location_.slice,
                    location_.offset, segment_.epoch, problem);
}

Result<Slice> Slice::open(const SegmentRecord& segment, uint32_t partition, const SliceLocation& location,
                          Bytes bytes, std::string_view path) {
  Slice slice(segment, partition, location, path);
  if (bytes.size() != segment.stride || bytes.size() < sizeof(SliceHeader)) {
    return slice.damaged(fmt::format("expected {} bytes, found {}", segment.stride, bytes.size()));
  }
  const auto header = get_fixed<SliceHeader>(bytes.data());
  const uint64_t longest = segment.stride + uint64_t{segment.overflow_units} * kStrideUnit;
  if (header.total_bytes < sizeof(header) || header.total_bytes > longest) {
    return slice.damaged(
        fmt::format("a length of {} bytes, expected {}..{}", header.total_bytes, sizeof(header), longest));
  }
  const Bytes inside = bytes.substr(0, std::min(header.total_bytes, segment.stride));
  const uint32_t found = crc32c_extend(slice.seed_, inside.substr(4));
  if (found != header.crc32c) {
    return slice.damaged(fmt::format("checksum {:08x}, expected {:08x}", found, header.crc32c));
  }
  if (header.slice != location.slice) return slice.damaged(fmt::format("found slice {} there", header.slice));
  slice.total_bytes_ = header.total_bytes;
  slice.overflow_unit_ = header.overflow_unit;
  slice.bytes_ = inside;
  if (slice.complete()) {
    SWALE_RETURN_IF_ERROR(slice.parse());
  } else if (const uint64_t beyond = 4 + uint64_t{header.total_bytes} - segment.stride;
             uint64_t{header.overflow_unit} * kStrideUnit + beyond > longest - segment.stride) {
    return slice.damaged(fmt::format("an overflow of {} bytes at unit {}, outside the overflow area", beyond,
                                     header.overflow_unit));
  }
  return slice;
}

std::optional<SliceLocation> Slice::overflow() const {
  if (complete()) return std::nullopt;
  const uint64_t area = segment_.index_offset + (uint64_t{segment_.stride} << segment_.slice_bits);
  return SliceLocation{.offset = area + uint64_t{overflow_unit_} * kStrideUnit,
                       .bytes = 4 + total_bytes_ - segment_.stride,
                       .slice = location_.slice};
}

Status Slice::attach_overflow(Bytes bytes) {
  const auto place = overflow();
  if (!place || bytes.size() != place->bytes) {
    return damaged(
        fmt::format("expected an overflow of {} bytes, found {}", place ? place->bytes : 0, bytes.size()));
  }
  char number[4];
  put_u32(number, location_.slice);
  const uint32_t found = crc32c_extend(crc32c_extend(seed_, {number, 4}), bytes.substr(4));
  if (found != get_u32(bytes.data())) {
    return damaged(fmt::format("its overflow at offset {} has checksum {:08x}, expected {:08x}",
                               place->offset, found, get_u32(bytes.data())));
  }
  whole_.assign(bytes_.begin(), bytes_.end());
  whole_.insert(whole_.end(), bytes.begin() + 4, bytes.end());
  bytes_ = {whole_.data(), whole_.size()};
  return parse();
}

bool Slice::parse_uniform_header(const char* bytes, Piece* piece) const {
  const auto header = get_fixed<UniformPieceHeader>(bytes);
  const uint32_t row_bytes = segment_.key_bytes + segment_.value_bytes;
  piece->block = segment_.data_block;
  piece->first_row = header.virtual_ordinal;
  piece->records = header.records_bucket_bits & 0xffffff;
  piece->bucket_bits = static_cast<uint8_t>(header.records_bucket_bits >> 24);
  piece->key_bytes = segment_.key_bytes;
  piece->value_bytes = segment_.value_bytes;
  piece->rows_per_block = rows_per_block(row_bytes);  // the footer's decoder has checked the sizes
  return true;
}

bool Slice::parse_mixed_header(const char* bytes, Piece* piece, uint32_t* end_bits) const {
  const auto header = get_fixed<MixedPieceHeader>(bytes);
  piece->block = segment_.data_block + header.block;
  piece->records = header.records_bucket_bits & 0xffffff;
  piece->bucket_bits = static_cast<uint8_t>(header.records_bucket_bits >> 24);
  piece->key_bytes = header.key_bytes;
  if (header.key_bytes == 0) {
    piece->ordinal = header.ordinal;
    *end_bits = piece->records + header.value_bytes;
    return true;
  }
  const uint32_t row_bytes = uint32_t{header.key_bytes} + header.value_bytes;
  if (row_bytes > kRowBytesMax) return false;
  piece->value_bytes = header.value_bytes;
  piece->rows_per_block = rows_per_block(row_bytes);
  piece->first_row = uint64_t{header_rows(row_bytes)} + header.ordinal;
  return true;
}

Status Slice::parse() {
  const bool uniform = (segment_.flags & kUniformSegment) != 0;
  const uint64_t header_bytes = uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  uint64_t arrays_at = sizeof(SliceHeader) + header_bytes * segment_.runs;
  if (arrays_at > bytes_.size())
    return damaged(fmt::format("no room for the headers of {} runs", segment_.runs));
  pieces_.reserve(segment_.runs);
  const char* header = bytes_.data() + sizeof(SliceHeader);
  uint64_t record_count = 0;
  for (uint32_t i = 0; i < segment_.runs; ++i, header += header_bytes) {
    Piece piece{};
    uint32_t end_bits = 0;
    const bool possible =
        uniform ? parse_uniform_header(header, &piece) : parse_mixed_header(header, &piece, &end_bits);
    if (!possible || uint32_t{piece.bucket_bits} + segment_.slice_bits > kBucketBitsMax) {
      return damaged(fmt::format("piece {} has impossible sizes", i));
    }
    const uint64_t bucket_array_bits = piece.records + (uint64_t{1} << piece.bucket_bits);
    const uint64_t bucket_bytes = (bucket_array_bits + 7) / 8;
    const uint64_t end_bytes = (uint64_t{end_bits} + 7) / 8;
    if (bucket_bytes + end_bytes > bytes_.size() - arrays_at) return damaged("its pieces exceed its length");
    piece.buckets = BitSpan(bytes_.data() + arrays_at, bucket_array_bits);
    piece.ends = BitSpan(bytes_.data() + arrays_at + bucket_bytes, end_bits);
    arrays_at += bucket_bytes + end_bytes;
    record_count += piece.records;
    pieces_.push_back(piece);
  }
  if (arrays_at + record_count != bytes_.size()) return damaged("its pieces do not add up to its length");
  const char* remainders = bytes_.data() + arrays_at;
  for (Piece& piece : pieces_) {
    piece.remainders = remainders;
    remainders += piece.records;
  }
  return {};
}

uint64_t Slice::records() const {
  uint64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.records;
  return count;
}

Slice::Matches Slice::find_bucket(const Piece& piece, Hash rest) const {
  const uint32_t prefix_bits = uint32_t{segment_.slice_bits} + piece.bucket_bits;
  const uint64_t fingerprint = rest >> (64 - prefix_bits - kRemainderBits);
  const uint64_t bucket = fingerprint >> kRemainderBits & ((uint64_t{1} << piece.bucket_bits) - 1);
  const uint64_t bit = piece.buckets.after_zeros(0, bucket);
  const uint64_t begin = std::min<uint64_t>(bit - bucket, piece.records);
  const uint64_t end = std::min<uint64_t>(begin + piece.buckets.ones_at(bit), piece.records);
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end), static_cast<uint8_t>(fingerprint)};
}

bool Slice::locate(const Piece& piece, uint32_t index, EndWalk* walk, Candidate* candidate) const {
  const uint64_t end_block = segment_.data_block + segment_.data_blocks;
  if (piece.key_bytes != 0) {
    const uint64_t row = piece.first_row + index;
    candidate->block = piece.block + row / piece.rows_per_block;
    candidate->slot = static_cast<uint32_t>(row % piece.rows_per_block);
    candidate->key_bytes = piece.key_bytes;
    candidate->value_bytes = piece.value_bytes;
    return candidate->block < end_block;
  }
  walk->bit = piece.ends.after_ones(walk->bit, index - walk->index);
  walk->index = index;
  const uint64_t behind = piece.ends.after_ones(walk->bit, 1);
  if (behind <= walk->bit || walk->bit < index) return false;  // fewer ends than records
  candidate->block = piece.block + (walk->bit - index);
  const uint64_t blocks = behind - walk->bit;
  candidate->block_count = static_cast<uint32_t>(blocks);
  candidate->slot = piece.ordinal + index;
  return blocks <= kCandidateBlocksMax && candidate->block + blocks <= end_block;
}

Status Slice::outside_epoch(const Piece& piece, uint32_t index) const {
  return damaged(fmt::format("record {} of the piece from block {} lies outside the epoch's blocks {}..{}",
                             index, piece.block, segment_.data_block,
                             segment_.data_block + segment_.data_blocks));
}

}  // namespace swale::run
