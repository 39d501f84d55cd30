#include "source/spill_run.h"

#include <algorithm>
#include <bit>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::source {
namespace {

constexpr size_t kBlockHeaderBytes = 16;
constexpr uint64_t kZerosMax = 64;  // a longer gap begins a new block
// The longest code, and the bits that the writer still holds.
constexpr size_t kPairBytesMax = (kZerosMax + 1 + kHashBits + kSourceBits + 7) / 8 + 8;

uint32_t block_crc(uint64_t number, Bytes bytes) {
  char salt[8];
  put_u64(salt, number);
  return crc32c_extend(crc32c(Bytes(salt, sizeof(salt))), bytes);
}

uint32_t bits_for(uint32_t sources) {
  return sources <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(sources - 1));
}

}  // namespace

SpillWriter::SpillWriter(io::File* file, uint64_t offset, uint64_t pairs, uint32_t sources)
    : file_(file), writer_(&block_) {
  run_ = {offset, 0, rice_parameter(kHashEnd / std::max<uint64_t>(pairs, 1)), bits_for(sources)};
  block_.reserve(kSpillBlockBytes);
  block_.assign(kBlockHeaderBytes, '\0');
}

Status SpillWriter::add(std::span<const Pair> pairs) {
  for (const Pair pair : pairs) SWALE_RETURN_IF_ERROR(put(pair));
  return ok_status();
}

Status SpillWriter::put(Pair pair) {
  const uint64_t hash = pair_hash(pair);
  if (count_ > 0 &&
      (block_.size() + kPairBytesMax > kSpillBlockBytes || (hash - hash_) >> run_.rice > kZerosMax)) {
    SWALE_RETURN_IF_ERROR(close_block());
  }
  if (count_ == 0) {
    put_u64(block_.data() + 8, hash);
    hash_ = hash;
  }
  writer_.put_rice(hash - hash_, run_.rice);
  writer_.put(pair_source(pair), run_.source_bits);
  hash_ = hash;
  ++count_;
  return ok_status();
}

Status SpillWriter::close_block() {
  writer_.finish();
  block_.resize(kSpillBlockBytes);
  put_u32(block_.data() + 4, count_);
  put_u32(block_.data(), block_crc(run_.blocks, Bytes(block_).substr(4)));
  SWALE_RETURN_IF_ERROR(file_->pwrite(run_.offset + run_.bytes(), block_));
  ++run_.blocks;
  block_.assign(kBlockHeaderBytes, '\0');
  count_ = 0;
  return ok_status();
}

Result<SpillRun> SpillWriter::finish() {
  if (count_ > 0) SWALE_RETURN_IF_ERROR(close_block());
  return run_;
}

SpillCursor::SpillCursor(io::File* file, const SpillRun& run) : file_(file), run_(run) {
  block_.resize(kSpillBlockBytes + kSlackBytes);
}

Status SpillCursor::load_block() {
  const uint64_t offset = run_.offset + next_block_ * kSpillBlockBytes;
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file_, offset, MutableBytes(block_.data(), kSpillBlockBytes)));
  const Bytes bytes(block_.data(), kSpillBlockBytes);
  if (get_u32(block_.data()) != block_crc(next_block_, bytes.substr(4))) {
    return corruption("{}: block of spilled keys at {} is damaged; the epoch cannot be finished",
                      file_->path(), offset);
  }
  left_ = get_u32(block_.data() + 4);
  hash_ = get_u64(block_.data() + 8);
  bit_ = kBlockHeaderBytes * 8;
  ++next_block_;
  return ok_status();
}

Status SpillCursor::next() {
  if (left_ == 0) {
    if (next_block_ == run_.blocks) {
      at_end_ = true;
      return ok_status();
    }
    SWALE_RETURN_IF_ERROR(load_block());
  }
  uint64_t gap = 0;
  const uint64_t end = kSpillBlockBytes * 8;
  if (left_ == 0 || !read_rice(block_.data(), &bit_, end, run_.rice, &gap) || bit_ + run_.source_bits > end) {
    return corruption("{}: block {} of spilled keys does not hold what it says", file_->path(),
                      next_block_ - 1);
  }
  hash_ += gap;
  pair_ = make_pair(hash_, static_cast<uint32_t>(load_bits(block_.data(), bit_, run_.source_bits)));
  bit_ += run_.source_bits;
  --left_;
  return ok_status();
}

Status SpillCursor::take_below(uint64_t limit, Pair** out) {
  if (!begun_) {
    begun_ = true;
    SWALE_RETURN_IF_ERROR(next());
  }
  while (!at_end_ && pair_hash(pair_) < limit) {
    *(*out)++ = pair_;
    SWALE_RETURN_IF_ERROR(next());
  }
  return ok_status();
}

}  // namespace swale::source
