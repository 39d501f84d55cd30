#include "run/segment_reader.h"

#include <algorithm>
#include <cassert>

#include "base/bits.h"
#include "base/coding.h"
#include "base/crc32c.h"
#include "run/filter_pieces.h"

namespace swale::run {

std::optional<SliceLocation> locate_slice(const SegmentRecord& segment, Hash rest) {
  if (segment.runs == 0 || is_auxiliary(segment)) return std::nullopt;
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
                    location_.offset, segment_->epoch, problem);
}

Result<Slice> Slice::open_seeded(const SegmentRecord& segment, uint32_t seed, const SliceLocation& location,
                                 Bytes bytes, std::string_view path) {
  Slice slice(segment, seed, location, path);
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

Result<Slice> Slice::open_verified(const SegmentRecord& segment, const SliceLocation& location, Bytes bytes,
                                   std::string_view path) {
  Slice slice(segment, 0, location, path);  // the seed is for checksums
  slice.total_bytes_ = static_cast<uint32_t>(bytes.size());
  slice.bytes_ = bytes;
  SWALE_RETURN_IF_ERROR(slice.parse());
  return slice;
}

std::optional<SliceLocation> Slice::overflow() const {
  if (complete()) return std::nullopt;
  const uint64_t area = segment_->index_offset + (uint64_t{segment_->stride} << segment_->slice_bits);
  return SliceLocation{.offset = area + uint64_t{overflow_unit_} * kStrideUnit,
                       .bytes = 4 + total_bytes_ - segment_->stride,
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

Status Slice::parse() {
  pieces_.uniform = (segment_->flags & kUniformSegment) != 0;
  pieces_.count = segment_->runs;
  pieces_.slice_bits = segment_->slice_bits;
  pieces_.headers = bytes_.data() + sizeof(SliceHeader);
  pieces_.end = bytes_.data() + bytes_.size();
  if (pieces_.uniform) {  // the footer's decoder has checked the sizes
    rows_per_block_ = rows_per_block(segment_->key_bytes + segment_->value_bytes);
  }
  if (filtered()) return check_filter_pieces();
  const uint64_t header_bytes = pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  const uint64_t arrays_at = sizeof(SliceHeader) + header_bytes * segment_->runs;
  if (arrays_at > bytes_.size()) {
    return damaged(fmt::format("no room for the headers of {} runs", segment_->runs));
  }
  pieces_.arrays = bytes_.data() + arrays_at;
  return check_pieces(pieces_.arrays);
}

Status Slice::check_pieces(const char* arrays) {
  const uint32_t bucket_bits_max = kBucketBitsMax - std::min<uint32_t>(kBucketBitsMax, segment_->slice_bits);
  const char* header = pieces_.headers;
  uint64_t left = static_cast<uint64_t>(pieces_.end - arrays);
  uint64_t records = 0;
  for (uint32_t i = 0; i < pieces_.count; ++i) {
    const PieceShape shape = pieces_.uniform ? uniform_piece_shape(header) : mixed_piece_shape(header);
    bool possible = shape.bucket_bits <= bucket_bits_max;
    if (!pieces_.uniform) {
      const auto mixed = get_fixed<MixedPieceHeader>(header);
      possible =
          possible && (mixed.key_bytes == 0 || uint32_t{mixed.key_bytes} + mixed.value_bytes <= kRowBytesMax);
    }
    if (!possible) return damaged(fmt::format("piece {} has impossible sizes", i));
    const uint64_t array_bytes = shape.bucket_bytes() + shape.end_bytes();
    if (array_bytes > left) return damaged("its pieces exceed its length");
    left -= array_bytes;
    records += shape.records;
    header += pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  }
  if (records != left) return damaged("its pieces do not add up to its length");
  pieces_.remainders = pieces_.end - left;
  pieces_.records = static_cast<uint32_t>(records);
  return {};
}

BloomShape Slice::filters() const {
  return {.blocked = (segment_->flags & kBlockedBloomSegment) != 0, .bits = segment_->filter_bits};
}

Status Slice::check_filter_pieces() {
  const uint64_t headers_bytes = sizeof(FilterPieceHeader) * uint64_t{segment_->runs};
  uint64_t left = bytes_.size() - sizeof(SliceHeader);
  if (headers_bytes > left) return damaged(fmt::format("no room for the headers of {} runs", segment_->runs));
  left -= headers_bytes;
  pieces_.arrays = pieces_.headers + headers_bytes;
  const char* body = pieces_.arrays;
  uint64_t records = 0;
  for (uint32_t i = 0; i < pieces_.count; ++i) {
    const FilterPiece piece(filters(), pieces_.headers + i * sizeof(FilterPieceHeader), body);
    const FilterPieceHeader& header = piece.header();
    if (uint32_t{header.key_bytes} + header.value_bytes > kRowBytesMax || header.records >= 1u << 24 ||
        uint64_t{header.block} + header.fences >= segment_->data_blocks) {
      return damaged(fmt::format("piece {} has impossible sizes", i));
    }
    if (piece.body_bytes() > left) return damaged("its pieces exceed its length");
    left -= piece.body_bytes();
    body += piece.body_bytes();
    records += header.records;
  }
  if (left != 0) return damaged("its pieces do not add up to its length");
  pieces_.records = static_cast<uint32_t>(records);
  return {};
}

// A candidate for each block in which records with the hash may start, with the blocks in which these may
// end.
Status Slice::filter_candidates(std::span<const Hash> rests,
                                const std::function<void(size_t, const Candidate&)>& fn) const {
  const char* body = pieces_.arrays;
  for (uint32_t i = 0; i < pieces_.count; ++i) {
    const FilterPiece piece(filters(), pieces_.headers + i * sizeof(FilterPieceHeader), body);
    body += piece.body_bytes();
    Candidate candidate;
    candidate.slot = kAnySlot;
    candidate.key_bytes = piece.header().key_bytes;
    candidate.value_bytes = piece.header().value_bytes;
    candidate.packed = piece.header().packed != 0;
    for (size_t hash = 0; hash < rests.size(); ++hash) {
      if (!piece.may_have(rests[hash])) continue;
      const FilterPiece::Blocks blocks = piece.blocks_of(rests[hash]);
      for (uint32_t block = blocks.first; block <= blocks.last; ++block) {
        candidate.block = segment_->data_block + piece.header().block + block;
        candidate.block_count =
            candidate.variable() ? std::min(blocks.last - block + 1, kCandidateBlocksMax) : 1;
        fn(hash, candidate);
      }
    }
  }
  return {};
}

uint32_t Slice::fingerprint_bits() const {
  const size_t header_bytes = pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  uint32_t bucket_bits = 0;
  for (uint32_t i = 0; i < pieces_.count; ++i) {
    const char* const header = pieces_.headers + i * header_bytes;
    const PieceShape shape = pieces_.uniform ? uniform_piece_shape(header) : mixed_piece_shape(header);
    bucket_bits = std::max<uint32_t>(bucket_bits, shape.bucket_bits);
  }
  return pieces_.slice_bits + bucket_bits + kRemainderBits;
}

bool Slice::locate(const SliceMatch& match, EndWalk* walk, Candidate* candidate) const {
  uint32_t rows_in_block = rows_per_block_;
  uint64_t row;
  BlockNumber block = segment_->data_block;
  if (pieces_.uniform) {
    row = uint64_t{get_fixed<UniformPieceHeader>(match.header).virtual_ordinal} + match.index;
    candidate->key_bytes = segment_->key_bytes;
    candidate->value_bytes = segment_->value_bytes;
  } else {
    const auto header = get_fixed<MixedPieceHeader>(match.header);
    if (header.key_bytes == 0) return locate_variable(match, header, walk, candidate);
    const uint32_t row_bytes = uint32_t{header.key_bytes} + header.value_bytes;
    rows_in_block = rows_per_block(row_bytes);
    row = uint64_t{header_rows(row_bytes)} + header.ordinal + match.index;
    block += header.block;
    candidate->key_bytes = header.key_bytes;
    candidate->value_bytes = header.value_bytes;
  }
  candidate->block = block + row / rows_in_block;
  candidate->slot = static_cast<uint32_t>(row % rows_in_block);
  return candidate->block < segment_->data_block + segment_->data_blocks;
}

bool Slice::locate_variable(const SliceMatch& match, const MixedPieceHeader& header, EndWalk* walk,
                            Candidate* candidate) const {
  const BitSpan ends(match.ends, mixed_piece_shape(match.header).end_bits);
  if (walk->ends != match.ends || match.index < walk->index) *walk = {match.ends, 0, 0};
  walk->bit = ends.after_ones(walk->bit, match.index - walk->index);
  walk->index = match.index;
  const uint64_t behind = ends.after_ones(walk->bit, 1);
  if (behind <= walk->bit || walk->bit < match.index) return false;  // fewer ends than records
  const uint64_t blocks = behind - walk->bit;
  candidate->block = segment_->data_block + header.block + (walk->bit - match.index);
  candidate->block_count = static_cast<uint32_t>(blocks);
  candidate->slot = header.ordinal + match.index;
  candidate->packed = header.packed != 0;
  return blocks <= kCandidateBlocksMax &&
         candidate->block + blocks <= segment_->data_block + segment_->data_blocks;
}

Status Slice::outside_epoch(const SliceMatch& match) const {
  const size_t header_bytes = pieces_.uniform ? sizeof(UniformPieceHeader) : sizeof(MixedPieceHeader);
  return damaged(fmt::format("record {} of piece {} lies outside the epoch's blocks {}..{}", match.index,
                             static_cast<size_t>(match.header - pieces_.headers) / header_bytes,
                             segment_->data_block, segment_->data_block + segment_->data_blocks));
}

Result<std::vector<Slice>> open_slices(const SegmentRecord& segment, PartitionNumber partition, Bytes bytes,
                                       std::string_view path) {
  std::vector<Slice> slices;
  uint64_t records = 0;
  const auto at = [&](const SliceLocation& place) {
    return bytes.substr(place.offset - segment.index_offset, place.bytes);
  };
  for (uint32_t number = 0; number >> segment.slice_bits == 0; ++number) {
    const SliceLocation place = slice_location(segment, number);
    SWALE_ASSIGN_OR_RETURN(Slice slice, Slice::open(segment, partition, place, at(place), path));
    if (const auto rest = slice.overflow()) SWALE_RETURN_IF_ERROR(slice.attach_overflow(at(*rest)));
    records += slice.records();
    slices.push_back(std::move(slice));
  }
  if (records == segment.records) return slices;
  return corruption("{}: offset {}: the slices of epoch {}, way {}, have {} records, the footer says {}",
                    path, segment.index_offset, segment.epoch, segment.way, records, segment.records);
}

}  // namespace swale::run
