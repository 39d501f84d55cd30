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
// A piece may leave so many bytes to the next one in order to end with a record: a query for that record then
// reads one block instead of two.
constexpr size_t kCutShare = 16;

uint32_t row_bytes_of(const Memtable& memtable) {
  return memtable.uniform() ? static_cast<uint32_t>(memtable.encoded_bytes() / memtable.count()) : 0;
}

void append_record(const Memtable::Row& row, std::vector<char>* out) {
  char sizes[kRecordHeaderBytesMax];
  const char* const end = put_varint(put_varint(sizes, row.view.key.size()), row.value_code);
  out->insert(out->end(), static_cast<const char*>(sizes), end);
  const Bytes bytes = row.view.row();
  out->insert(out->end(), bytes.begin(), bytes.end());
}

}  // namespace

// Encoded rows of some bins from each thirty-second of the hash space, in samples of about kSampleBytes.
bool worth_packing(const Memtable& memtable, RunScratch& scratch, Compressor& compressor) {
  const uint32_t row_bytes = row_bytes_of(memtable);
  std::vector<char> sample;
  std::vector<char> columns;
  std::vector<char> out(kSampleBytes + kEncodedRecordBytesMax);
  uint64_t raw = 0;
  uint64_t stored = 0;
  const auto weigh = [&] {
    Bytes bytes(sample.data(), sample.size());
    if (row_bytes > 1 && row_bytes <= bytes.size()) {
      columns.resize(bytes.size());
      transpose_rows(bytes, row_bytes, columns);
      bytes = {columns.data(), columns.size()};
    }
    const size_t packed = compressor.compress(bytes, out);
    raw += bytes.size();
    stored += packed == 0 ? bytes.size() : packed;
    sample.clear();
  };
  for (uint32_t bin = 0; bin < Memtable::kBins; ++bin) {
    const size_t count = memtable.collect(bin, scratch.entries());
    for (size_t i = 0; i < count && sample.size() < kSampleBytes; ++i) {
      append_record(memtable.row(scratch.entries()[i]), &sample);
    }
    if (sample.size() < kSampleBytes) continue;
    weigh();
    bin |= Memtable::kBins / kSamples - 1;  // one sample of each part
  }
  if (!sample.empty()) weigh();
  const uint64_t packed_blocks = packed_blocks_max(memtable.encoded_bytes() * stored / raw);
  return packed_blocks * 100 < RunBuilder::block_count(memtable) * kWorthPercent;
}

PackedRunBuilder::PackedRunBuilder(const Memtable& memtable, RunScratch& scratch, SketchArena& arena,
                                   Compressor& compressor, MutableBytes blocks, const RunPlacement& placement)
    : RunOutput(memtable.shape(), RunKind::kPacked, packed_blocks_max(memtable.encoded_bytes()), placement,
                compressor.codec()),
      memtable_(memtable),
      compressor_(compressor),
      blocks_(blocks),
      row_bytes_(row_bytes_of(memtable)),
      sketch_builder_(&sketch_, arena, placement.with_tails),
      sorter_(memtable, scratch),
      columns_(kPieceBytesMax),
      spare_(kPackedBytesMax) {
  assert(blocks.size() >= packed_bytes_max(memtable.encoded_bytes()));
  window_.reserve(kWindowBytes);
}

size_t PackedRunBuilder::sketch_bytes(const Memtable& memtable, bool with_tails) {
  return sketch_memory_bytes(memtable.count(), packed_blocks_max(memtable.encoded_bytes()), RunKind::kPacked,
                             with_tails);
}

void PackedRunBuilder::pack() {
  for (gather(); !window().empty(); gather()) {
    char* const block = blocks_.data() + size_t{packed_blocks_} * kBlockBytes;
    assert(packed_blocks_ < packed_blocks_max(memtable_.encoded_bytes()));
    pack_block(block);
    ++packed_blocks_;
  }
  assert(packed_records_ == header_.records);
  sketch_builder_.finish();
}

// Fills the window up to the longest possible piece, or with all that is left.
void PackedRunBuilder::gather() {
  if (window().size() >= kPieceBytesMax || gathered_ == header_.records) return;
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(window_front_));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(first_end_));
  for (End& end : ends_) end.at -= window_front_;
  window_front_ = first_end_ = 0;
  while (window_.size() < kWindowBytes - kEncodedRecordBytesMax && gathered_ < header_.records) {
    const uint64_t entry = sorter_.peek(1).front();
    sorter_.pop(1);
    const Memtable::Row row = memtable_.row(entry);
    digest_ += record_digest(row.view);
    sorter_.fetcher().fetch(Memtable::kRowHeadBytes + row.view.row().size());
    append_record(row, &window_);
    ends_.push_back({window_.size(), entry});
    ++gathered_;
  }
}

// The end of the last record that ends in the piece's last part; else `bytes`.
size_t PackedRunBuilder::cut(size_t bytes) const {
  const auto first = ends_.begin() + static_cast<std::ptrdiff_t>(first_end_);
  const auto behind = std::partition_point(first, ends_.end(),
                                           [&](const End& end) { return end.at <= window_front_ + bytes; });
  if (behind == first) return bytes;
  const size_t end = behind[-1].at - window_front_;
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
  Piece best{std::min(limit, space), 0};  // uncompressed
  size_t too_much = limit + 1;            // so many bytes are known not to fit
  size_t wanted = std::min(limit, static_cast<size_t>(static_cast<double>(space) * expected_ratio_));
  for (uint32_t tries = 0; tries < kTriesMax && wanted > best.bytes; ++tries) {
    const Piece piece = try_piece(cut(wanted), space, spare_);
    if (piece.stored == 0) {
      too_much = std::min(too_much, piece.bytes);
      // If the first try fails, a little less probably fits; after that, no guess is better than half way.
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

// Makes the block's trailer except number and checksum, adds to the sketch, and removes the piece from the
// window.
void PackedRunBuilder::finish_piece(char* block, size_t bytes) {
  const size_t end = window_front_ + bytes;
  const uint32_t first_ordinal = packed_records_ + (in_record_ ? 1 : 0);
  uint32_t starts = in_record_ ? 0 : 1;
  size_t first_start = in_record_ ? kNoRecordStarts : 0;
  bool ends_with_record = false;
  for (; first_end_ < ends_.size() && ends_[first_end_].at <= end; ++first_end_) {
    const uint64_t entry = ends_[first_end_].entry;
    sketch_builder_.add(entry);
    if (sketch_builder_.with_tails()) sketch_builder_.add_tails(&entry, packed_records_, 1);
    ++packed_records_;
    sketch_builder_.add_end(packed_blocks_);
    ends_with_record = ends_[first_end_].at == end;
    if (ends_with_record) break;
    if (starts++ == 0) first_start = ends_[first_end_].at - window_front_;
  }
  if (ends_with_record) ++first_end_;
  in_record_ = !ends_with_record;
  window_front_ = end;
  seal_block(block, 0, BlockNumber(), first_ordinal, starts, static_cast<uint32_t>(first_start));
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
