#include "run/packed_run_builder.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/coding.h"
#include "base/hash.h"
#include "run/block.h"
#include "run/run_builder.h"

namespace swale::run {
namespace {

constexpr size_t kSampleBytes = 8 * kKiB;
constexpr size_t kSamples = 8;
constexpr uint64_t kWorthPercent = 97;
constexpr uint32_t kTriesMax = 5;
constexpr uint32_t kPrefetchDistance = 16;
// A piece may leave so much of its stream to the next one if it then ends with a record: a query for that record reads
// one block instead of two.
constexpr size_t kCutShare = 16;

uint32_t row_bytes_of(const Memtable& memtable) {
  return memtable.uniform() ? static_cast<uint32_t>(memtable.bytes() / memtable.count()) : 0;
}

}  // namespace

bool worth_packing(const Memtable& memtable, Compressor& compressor) {
  const uint32_t row_bytes = row_bytes_of(memtable);
  const size_t distance = std::max(memtable.bytes() / kSamples, kSampleBytes);
  std::vector<char> columns(kSampleBytes);
  std::vector<char> out(kSampleBytes);
  uint64_t raw = 0;
  uint64_t stored = 0;
  for (size_t at = 0; at < memtable.bytes(); at += distance) {
    Bytes sample = memtable.encoded_from(at).substr(0, kSampleBytes);
    if (row_bytes > 1 && row_bytes <= sample.size()) {
      const MutableBytes part(columns.data(), sample.size());
      transpose_rows(sample, row_bytes, part);
      sample = view(part);
    }
    const size_t bytes = compressor.compress(sample, out);
    raw += sample.size();
    stored += bytes == 0 ? sample.size() : bytes;
  }
  const uint64_t packed_blocks = packed_blocks_max(memtable.bytes() * stored / raw);
  return packed_blocks * 100 < RunBuilder::block_count(memtable) * kWorthPercent;
}

PackedRunBuilder::PackedRunBuilder(const Memtable& memtable, std::span<uint64_t> entries, RunScratch& scratch,
                                   SketchArena& arena, Compressor& compressor, MutableBytes blocks,
                                   const RunPlacement& placement)
    : RunOutput(memtable, RunKind::kPacked, packed_blocks_max(memtable.bytes()), placement,
                compressor.codec()),
      memtable_(memtable),
      compressor_(compressor),
      blocks_(blocks),
      row_bytes_(row_bytes_of(memtable)),
      sketch_builder_(&sketch_, arena, placement.with_tails),
      sorter_(entries, memtable.digit_counts(), scratch),
      columns_(kPieceBytesMax),
      spare_(kPackedBytesMax) {
  assert(blocks.size() >= packed_bytes_max(memtable.bytes()));
  window_.reserve(kWindowBytes);
}

size_t PackedRunBuilder::sketch_bytes(const Memtable& memtable, bool with_tails) {
  return sketch_memory_bytes(memtable.count(), packed_blocks_max(memtable.bytes()), RunKind::kPacked,
                             with_tails);
}

void PackedRunBuilder::pack() {
  for (gather(); !window().empty(); gather()) {
    char* const block = blocks_.data() + size_t{packed_blocks_} * kBlockBytes;
    assert(packed_blocks_ < packed_blocks_max(memtable_.bytes()));
    pack_block(block);
    ++packed_blocks_;
  }
  assert(packed_records_ == header_.records);
  sketch_builder_.finish();
  if (sketch_builder_.with_tails()) sketch_builder_.add_tails(sorter_.entries(), 0, header_.records);
}

// Makes the window hold the longest piece that may be wanted, or all that is left.
void PackedRunBuilder::gather() {
  if (window().size() >= kPieceBytesMax || gathered_ == header_.records) return;
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(window_front_));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(first_end_));
  for (size_t& end : ends_) end -= window_front_;
  window_front_ = first_end_ = 0;
  while (window_.size() < kWindowBytes - kEncodedRecordBytesMax && gathered_ < header_.records) {
    sorter_.sort_up_to(gathered_ + kPrefetchDistance + 1);
    const uint64_t* const entries = sorter_.entries();
    if (gathered_ + kPrefetchDistance < sorter_.sorted())
      __builtin_prefetch(memtable_.arena() + (entries[gathered_ + kPrefetchDistance] & kEntryOffsetMask));
    RecordView record;
    [[maybe_unused]] const RecordParse parse =
        parse_record(memtable_.encoded_from(entries[gathered_] & kEntryOffsetMask), &record);
    assert(parse == RecordParse::kOk && "append took what parse_record gave");
    digest_ += record_digest(record);
    window_.insert(window_.end(), record.encoded.begin(), record.encoded.end());
    ends_.push_back(window_.size());
    ++gathered_;
  }
}

// The end of the last record in the piece's last part, or else `bytes`.
size_t PackedRunBuilder::cut(size_t bytes) const {
  const auto behind = std::upper_bound(ends_.begin() + static_cast<std::ptrdiff_t>(first_end_), ends_.end(),
                                       window_front_ + bytes);
  if (behind == ends_.begin() + static_cast<std::ptrdiff_t>(first_end_)) return bytes;
  const size_t end = behind[-1] - window_front_;
  return end >= bytes - bytes / kCutShare ? end : bytes;
}

PackedRunBuilder::Piece PackedRunBuilder::try_piece(size_t bytes, size_t space, MutableBytes out) {
  Bytes piece = window().substr(0, bytes);
  if (row_bytes_ > 1 && row_bytes_ <= bytes) {
    const MutableBytes part(columns_.data(), bytes);
    transpose_rows(piece, row_bytes_, part);
    piece = view(part);
  }
  return {bytes, compressor_.compress(piece, out.subspan(0, space))};
}

void PackedRunBuilder::pack_block(char* block) {
  const size_t begin = packed_blocks_ == 0 ? sizeof(RunHeader) : 0;
  const size_t space = kPackedBytesMax - begin;
  const size_t limit = std::min(window().size(), kPieceBytesMax);
  Piece best{std::min(limit, space), 0};  // as it is
  size_t too_much = limit + 1;            // so many bytes are known not to fit
  size_t wanted = std::min(limit, static_cast<size_t>(static_cast<double>(space) * expected_ratio_));
  for (uint32_t tries = 0; tries < kTriesMax && wanted > best.bytes; ++tries) {
    const Piece piece = try_piece(cut(wanted), space, spare_);
    if (piece.stored == 0) {
      too_much = std::min(too_much, piece.bytes);
      // At first it is a little less that fits; after that, no guess is better than half way.
      wanted = tries == 0 ? wanted - wanted / 25 : (best.bytes + too_much) / 2;
      wanted = std::min(wanted, too_much - 1);
      continue;
    }
    if (piece.bytes <= best.bytes) break;  // cut short: no gain
    best = piece;
    std::memcpy(block + begin, spare_.data(), piece.stored);
    if (piece.bytes == limit || piece.stored > space - space / 32) break;
    wanted = std::min({limit, piece.bytes * space / piece.stored * 199 / 200, (piece.bytes + too_much) / 2});
    if (wanted < piece.bytes + piece.bytes / 50) break;
  }
  const double ratio = static_cast<double>(best.bytes) / static_cast<double>(space);
  expected_ratio_ = std::max((expected_ratio_ + ratio) / 2 * 1.01, 1.02);
  PackedTrailer trailer{};
  if (best.stored == 0) {
    best.stored = best.bytes;
    trailer.codec = Codec::kNone;
    std::memcpy(block + begin, window().data(), best.bytes);
  } else {
    trailer.codec = compressor_.codec();
    trailer.row_bytes = static_cast<uint16_t>(row_bytes_ > 1 && row_bytes_ <= best.bytes ? row_bytes_ : 0);
  }
  trailer.stored_bytes = static_cast<uint16_t>(best.stored);
  trailer.piece_bytes = static_cast<uint16_t>(best.bytes);
  std::memset(block + begin + best.stored, 0, space - best.stored);
  put_fixed(block + kPackedBytesMax, trailer);
  finish_piece(block, best.bytes);
}

// The block's trailer but for number and checksum, and what the sketch must know. Takes the piece from the window.
void PackedRunBuilder::finish_piece(char* block, size_t bytes) {
  const size_t end = window_front_ + bytes;
  const uint32_t first_ordinal = packed_records_ + (in_record_ ? 1 : 0);
  uint32_t starts = in_record_ ? 0 : 1;
  size_t first_start = in_record_ ? kNoRecordStarts : 0;
  const uint64_t* const entries = sorter_.entries();
  bool ends_with_record = false;
  for (; first_end_ < ends_.size() && ends_[first_end_] <= end; ++first_end_) {
    sketch_builder_.add(entries[packed_records_++]);
    sketch_builder_.add_end(packed_blocks_);
    ends_with_record = ends_[first_end_] == end;
    if (ends_with_record) break;
    if (starts++ == 0) first_start = ends_[first_end_] - window_front_;
  }
  if (ends_with_record) ++first_end_;
  in_record_ = !ends_with_record;
  window_front_ = end;
  seal_block(block, 0, 0, first_ordinal, starts, static_cast<uint32_t>(first_start));
}

size_t PackedRunBuilder::fill(MutableBytes out) {
  assert(out.size() >= kBlockBytes && out.size() % kBlockBytes == 0 && header_.blocks == packed_blocks_);
  size_t produced = 0;
  for (; produced < out.size() && !done(); produced += kBlockBytes, ++next_block_) {
    char* const block = out.data() + produced;
    std::memcpy(block, blocks_.data() + size_t{next_block_} * kBlockBytes, kBlockBytes);
    if (next_block_ == 0) std::memcpy(block, &header_, sizeof(header_));
    const BlockTrailer trailer = block_trailer(block);
    seal_block(block, seed_, first_block_ + next_block_, trailer.first_ordinal, trailer.count,
               trailer.first_start);
  }
  return produced;
}

}  // namespace swale::run
