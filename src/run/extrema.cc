#include "run/extrema.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/block.h"
#include "run/packed_block.h"
#include "run/record.h"

namespace swale::run {
namespace {

// Floats as signed integers of the same order; NaNs lie outside of the infinities.
constexpr int64_t order_bits(uint64_t bits) {
  const auto number = static_cast<int64_t>(bits);
  return number ^ static_cast<int64_t>(static_cast<uint64_t>(number >> 63) >> 1);
}
constexpr int32_t order_bits(uint32_t bits) {
  const auto number = static_cast<int32_t>(bits);
  return number ^ static_cast<int32_t>(static_cast<uint32_t>(number >> 31) >> 1);
}

struct Double {
  using Stored = uint64_t;
  static constexpr int64_t kInfinity = int64_t{0x7ff} << 52;
  static int64_t ordered(Stored bits) { return order_bits(bits); }
  static bool beyond(int64_t least, int64_t greatest) {
    return greatest > kInfinity || least < order_bits(uint64_t{0xfff} << 52);
  }
  static OrderKey key(int64_t ordered) {
    return double_key(static_cast<uint64_t>(order_bits(static_cast<uint64_t>(ordered))));
  }
};

struct Float {
  using Stored = uint32_t;
  static constexpr int32_t kInfinity = int32_t{0xff} << 23;
  static int32_t ordered(Stored bits) { return order_bits(bits); }
  static bool beyond(int32_t least, int32_t greatest) {
    return greatest > kInfinity || least < order_bits(uint32_t{0x1ff} << 23);
  }
  static OrderKey key(int32_t ordered) {
    return float_key(static_cast<uint32_t>(order_bits(static_cast<uint32_t>(ordered))));
  }
};

template <class T>
struct Integer {
  using Stored = T;
  static T ordered(T number) { return number; }
  static bool beyond(T, T) { return false; }
  static OrderKey key(T number) {
    if constexpr (std::is_signed_v<T>) {
      return signed_key(number);
    } else {
      return unsigned_key(number);
    }
  }
};

// The hot loop: `count` >= 1 numbers at a distance of `stride`. False if one is a NaN. Two chains of minima
// and maxima, so that neither waits for the other's results.
template <class Number>
bool extrema_of(const char* at, size_t stride, uint32_t count, Extrema* out) {
  using Stored = typename Number::Stored;
  auto least = Number::ordered(get_fixed<Stored>(at));
  auto greatest = least;
  auto least2 = least;
  auto greatest2 = least;
  uint32_t i = 1;
  for (at += stride; i + 1 < count; i += 2, at += 2 * stride) {
    const auto a = Number::ordered(get_fixed<Stored>(at));
    const auto b = Number::ordered(get_fixed<Stored>(at + stride));
    least = a < least ? a : least;
    least2 = b < least2 ? b : least2;
    greatest = a > greatest ? a : greatest;
    greatest2 = b > greatest2 ? b : greatest2;
  }
  if (i < count) {
    const auto last = Number::ordered(get_fixed<Stored>(at));
    least = std::min(least, last);
    greatest = std::max(greatest, last);
  }
  least = std::min(least, least2);
  greatest = std::max(greatest, greatest2);
  if (Number::beyond(least, greatest)) return false;
  *out = {Number::key(least), Number::key(greatest)};
  return true;
}

bool extrema_of(FieldType type, const char* at, size_t stride, uint32_t count, Extrema* out) {
  switch (type) {
    case FieldType::kF4:
      return extrema_of<Float>(at, stride, count, out);
    case FieldType::kF8:
      return extrema_of<Double>(at, stride, count, out);
    case FieldType::kI1:
      return extrema_of<Integer<int8_t>>(at, stride, count, out);
    case FieldType::kI2:
      return extrema_of<Integer<int16_t>>(at, stride, count, out);
    case FieldType::kI4:
      return extrema_of<Integer<int32_t>>(at, stride, count, out);
    case FieldType::kI8:
      return extrema_of<Integer<int64_t>>(at, stride, count, out);
    case FieldType::kU1:
      return extrema_of<Integer<uint8_t>>(at, stride, count, out);
    case FieldType::kU2:
      return extrema_of<Integer<uint16_t>>(at, stride, count, out);
    case FieldType::kU4:
      return extrema_of<Integer<uint32_t>>(at, stride, count, out);
    case FieldType::kU8:
      return extrema_of<Integer<uint64_t>>(at, stride, count, out);
  }
  return false;
}

using Entry = ExtremaSegmentBuilder::Entry;

// Sorts by descending score; stable. Radix passes over the top 33 bits of the distance to the best score;
// entries equal in these bits are compared.
void sort_best_first(std::vector<Entry>& entries, std::vector<Entry>& scratch) {
  constexpr unsigned kDigitBits = 11;
  constexpr unsigned kPrefixBits = 3 * kDigitBits;
  if (entries.empty()) return;
  const auto [least, greatest] = std::minmax_element(
      entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.score < b.score; });
  const OrderKey best = greatest->score;
  const auto bits = static_cast<unsigned>(std::bit_width(best - least->score));
  const unsigned shift = bits > kPrefixBits ? bits - kPrefixBits : 0;
  scratch.resize(entries.size());
  for (unsigned done = 0; done < bits - shift; done += kDigitBits) {
    const auto digit = [&](const Entry& entry) {
      return (best - entry.score) >> (shift + done) & ((1u << kDigitBits) - 1);
    };
    std::array<uint32_t, 1u << kDigitBits> places{};
    for (const Entry& entry : entries) ++places[digit(entry)];
    uint32_t place = 0;
    for (uint32_t& count : places) place += std::exchange(count, place);
    for (const Entry& entry : entries) scratch[places[digit(entry)]++] = entry;
    entries.swap(scratch);
  }
  if (shift == 0) return;
  for (auto begin = entries.begin(); begin != entries.end();) {
    const auto other = [&](const Entry& entry) {
      return (best - entry.score) >> shift != (best - begin->score) >> shift;
    };
    const auto end = std::find_if(begin + 1, entries.end(), other);
    if (end - begin > 1) {
      std::sort(begin, end, [](const Entry& a, const Entry& b) {
        return a.score != b.score ? a.score > b.score : a.block < b.block;
      });
    }
    begin = end;
  }
}

}  // namespace

uint32_t extrema_seed(PartitionNumber partition, const SegmentRecord& segment, uint32_t part) {
  char bytes[12];
  put_u64(bytes, segment.index_offset);
  put_u32(bytes + 8, part);
  return crc32c_extend(segment_seed(partition, segment), {bytes, sizeof(bytes)});
}

ExtremaGroup::ExtremaGroup(std::span<const FieldPlace> fields, uint32_t blocks_max)
    : fields_(fields.begin(), fields.end()),
      blocks_max_(std::min(blocks_max, kGroupBlocksMax)),
      blocks_of_(fields.size()),
      totals_(fields.size()) {
  for (std::vector<Extrema>& blocks : blocks_of_) blocks.reserve(blocks_max_);
}

void ExtremaGroup::begin_run(BlockNumber first_block, uint32_t blocks) {
  assert(fits(blocks) && next_block_ == blocks_ && unfinished_.empty());
  runs_.push_back({first_block, blocks_, {}});
  blocks_ += blocks;
  for (std::vector<Extrema>& of : blocks_of_) of.resize(blocks_);
}

void ExtremaGroup::clear() {
  runs_.clear();
  for (std::vector<Extrema>& blocks : blocks_of_) blocks.clear();
  std::fill(totals_.begin(), totals_.end(), FieldTotals());
  blocks_ = 0;
  next_block_ = 0;
  unfinished_.clear();
}

void ExtremaGroup::add_blocks(Bytes blocks) {
  assert(blocks.size() % kBlockBytes == 0);
  for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes)) add_block(blocks.substr(0, kBlockBytes));
}

void ExtremaGroup::add_block(Bytes block) {
  assert(next_block_ < blocks_);
  Run& run = runs_.back();
  if (next_block_ == run.group_block) run.header = get_fixed<RunHeader>(block.data());
  if (run.header.kind == RunKind::kUniform) {
    const BlockTrailer trailer = block_trailer(block.data());
    if (trailer.count > 0) add_rows(block.data() + trailer.first_start, trailer.count);
  } else {
    add_stream(block);
  }
  ++next_block_;
}

void ExtremaGroup::add_rows(const char* row, uint32_t count) {
  const RunHeader& header = runs_.back().header;
  const size_t stride = header.key_bytes + size_t{header.value_bytes};
  const Bytes first_value{row + header.key_bytes, header.value_bytes};
  const size_t fields_bytes =
      stored_fields(header.values, {.key = {}, .value = first_value, .encoded = {}}).size();
  for (size_t f = 0; f < fields_.size(); ++f) {
    const FieldPlace& place = fields_[f];
    Extrema& extrema = blocks_of_[f][next_block_];
    if (place.end() > fields_bytes) {
      totals_[f].absent += count;
    } else if (extrema_of(place.type, row + header.key_bytes + place.offset, stride, count, &extrema)) {
      totals_[f].extrema.add(extrema);
    } else {
      FieldTotals totals;
      for (uint32_t i = 0; i < count; ++i) {
        totals.add(read_field(place, {row + i * stride + header.key_bytes, fields_bytes}));
      }
      extrema = totals.extrema;
      totals_[f].add(totals);
    }
  }
}

void ExtremaGroup::add_record(uint32_t block, Bytes value) {
  for (size_t f = 0; f < fields_.size(); ++f) {
    const FieldValue number = read_field(fields_[f], value);
    totals_[f].add(number);
    if (number.kind == FieldValue::Kind::kNumber) blocks_of_[f][block].add(number.key);
  }
}

// Encoded records through payloads or pieces; one may span blocks, the last one of a block normally does.
void ExtremaGroup::add_stream(Bytes block) {
  const Run& run = runs_.back();
  const BlockTrailer trailer = block_trailer(block.data());
  const bool packed = run.header.kind == RunKind::kPacked;
  const size_t begin = next_block_ == run.group_block && !packed ? sizeof(RunHeader) : 0;
  const auto stream = stream_of_block(block, packed, BlockNumber(next_block_), "memory", &piece_);
  assert(stream.ok() && "the run builder wrote it");
  const bool last = next_block_ + 1 == run.group_block + run.header.blocks;
  const size_t start = trailer.count == 0 ? stream->size() : trailer.first_start;
  RecordView record;
  if (!unfinished_.empty()) {
    const Bytes part = stream->substr(begin, start - begin);
    unfinished_.append(part);
    if (trailer.count > 0 || last) {
      [[maybe_unused]] const RecordParse parse =
          parse_record({unfinished_.data(), unfinished_.size()}, &record);
      assert(parse == RecordParse::kOk && "the run builder wrote it");
      add_record(unfinished_block_, stored_fields(run.header.values, record));
      unfinished_.clear();
    }
  }
  Bytes payload = stream->substr(start);
  for (uint32_t i = 0; i < trailer.count; ++i) {
    if (parse_record(payload, &record) != RecordParse::kOk) {
      assert(i + 1 == trailer.count && !last);
      unfinished_.assign(payload);
      unfinished_block_ = next_block_;
      return;
    }
    payload.remove_prefix(record.encoded.size());
    add_record(next_block_, stored_fields(run.header.values, record));
  }
}

ExtremaSegmentBuilder::ExtremaSegmentBuilder(const ExtremaGroup& group, const SegmentParams& params,
                                             uint64_t index_end)
    : group_(group), partition_(params.partition) {
  assert(!group.empty() && group.next_block_ == group.blocks_);
  uint64_t lists_bytes = 0;
  for (const std::vector<Extrema>& blocks : group.blocks_of_) {
    const auto listed =
        std::count_if(blocks.begin(), blocks.end(), [](const Extrema& block) { return !block.empty(); });
    listed_.push_back(static_cast<uint32_t>(listed));
    lists_bytes += 2 * list_bytes(listed_.back());
  }
  segment_.data_block = params.data_block;
  segment_.epoch_id = params.epoch_id;
  for (const ExtremaGroup::Run& run : group.runs_) segment_.records += run.header.records;
  segment_.epoch = params.epoch;
  segment_.data_blocks = params.data_blocks;
  segment_.runs = static_cast<uint32_t>(group.runs_.size());
  segment_.stride = static_cast<uint32_t>(extrema_head_bytes(group.runs_.size(), group.fields()));
  segment_.overflow_units = static_cast<uint32_t>(round_up(lists_bytes, kStrideUnit) / kStrideUnit);
  segment_.flags = kExtremaFlags;
  segment_.key_bytes = static_cast<uint8_t>(group.fields());
  segment_.way = params.way;
  segment_.ways = params.ways;
  segment_.value_bytes = group.blocks_;
  segment_.index_offset = segment_offset(index_end, size_bytes());
}

void ExtremaSegmentBuilder::make_head() {
  buffer_.assign(segment_.stride, 0);
  char* out = buffer_.data();
  put_fixed(out, ExtremaHead{.crc32c = 0,
                             .magic = kExtremaMagic,
                             .head_bytes = segment_.stride,
                             .blocks = group_.blocks_,
                             .runs = segment_.runs,
                             .fields = static_cast<uint32_t>(group_.fields()),
                             .records = segment_.records,
                             .reserved = {}});
  out += sizeof(ExtremaHead);
  for (size_t f = 0; f < group_.fields(); ++f, out += sizeof(ExtremaField)) {
    const FieldTotals& totals = group_.totals_[f];
    put_fixed(out, ExtremaField{.type = group_.fields_[f].type,
                                .reserved0 = {},
                                .offset = group_.fields_[f].offset,
                                .nans = totals.nans,
                                .absent = totals.absent,
                                .minimum = totals.extrema.minimum,
                                .maximum = totals.extrema.maximum,
                                .listed = listed_[f],
                                .reserved1 = 0,
                                .reserved2 = {}});
  }
  for (const ExtremaGroup::Run& run : group_.runs_) {
    put_fixed(out, ExtremaRun{.first_block = static_cast<uint32_t>(run.first_block - segment_.data_block),
                              .blocks = run.header.blocks,
                              .records = run.header.records,
                              .value_bytes = run.header.value_bytes,
                              .kind = run.header.kind,
                              .key_bytes = run.header.key_bytes,
                              .reserved0 = 0,
                              .reserved1 = 0});
    out += sizeof(ExtremaRun);
    for (const std::vector<Extrema>& blocks : group_.blocks_of_) {
      Extrema extrema;
      for (uint32_t i = 0; i < run.header.blocks; ++i) extrema.add(blocks[run.group_block + i]);
      put_u64(out, extrema.minimum);
      put_u64(out + 8, extrema.maximum);
      out += 16;
    }
  }
  const uint32_t seed = extrema_seed(partition_, segment_, kHeadPart);
  put_u32(buffer_.data(), crc32c_extend(seed, Bytes(buffer_.data(), buffer_.size()).substr(4)));
  head_made_ = true;
}

void ExtremaSegmentBuilder::sort_list() {
  const std::vector<Extrema>& blocks = group_.blocks_of_[field()];
  order_.clear();
  order_.reserve(listed_[field()]);
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].empty())
      order_.push_back({score_of(which(), blocks[i].best(which())), static_cast<uint16_t>(i)});
  }
  sort_best_first(order_, scratch_);
}

void ExtremaSegmentBuilder::make_piece() {
  const ListPieceShape shape = list_piece_shape(listed_[field()], piece_);
  buffer_.assign(shape.bytes(), 0);
  char* out = buffer_.data() + kPieceHeaderBytes;
  for (uint32_t i = 0; i < shape.entries; i += shape.step, out += 8) {
    put_u64(out, score_of(which(), order_[shape.first_entry + i].score));
  }
  for (uint32_t i = 0; i < shape.entries; ++i, out += 2) put_u16(out, order_[shape.first_entry + i].block);
  const uint32_t part = piece_part(static_cast<uint32_t>(field()), which(), piece_);
  put_u32(buffer_.data(), crc32c_extend(extrema_seed(partition_, segment_, part),
                                        Bytes(buffer_.data(), buffer_.size()).substr(4)));
}

// Puts the next bytes of the segment into buffer_; false after the last list.
bool ExtremaSegmentBuilder::next_chunk() {
  taken_ = 0;
  if (!head_made_) {
    make_head();
    return true;
  }
  while (list_ < lists() && piece_ == piece_count(listed_[field()])) {
    ++list_;
    piece_ = 0;
  }
  if (list_ == lists()) return false;
  if (piece_ == 0) sort_list();
  make_piece();
  ++piece_;
  return true;
}

size_t ExtremaSegmentBuilder::fill(MutableBytes out) {
  assert(out.size() >= kIndexPageBytes && out.size() % kIndexPageBytes == 0);
  const size_t wanted = std::min<uint64_t>(out.size(), size_bytes() - produced_bytes_);
  size_t at = 0;
  while (at < wanted) {
    if (taken_ == buffer_.size() && !next_chunk()) break;
    const size_t part = std::min(buffer_.size() - taken_, wanted - at);
    std::memcpy(out.data() + at, buffer_.data() + taken_, part);
    taken_ += part;
    at += part;
  }
  std::memset(out.data() + at, 0, wanted - at);
  produced_bytes_ += wanted;
  return wanted;
}

}  // namespace swale::run
