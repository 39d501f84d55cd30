// Batch: the message with which a source tells a home which keys it has written: the kept hashes, sorted,
// each as the difference to the one before, Rice-coded. 4,096 keys take 2.95 bytes each, where key and rank
// take 8 to 12.
//
// A home keeps batches as they came (PairStore) and reads them with BatchCursors, all of them side by side in
// the order of hashes. Keys that came one by one (source/key_message.h) it keeps in *mixed batches*, of many
// sources: the code of each hash, which may be that of the one before, is followed by the source. Mixed
// batches stay in the home's memory.
//
// Format (never stored in a directory):
//   batch := crc u32 | bytes u32 | epoch u32 | source u32 | count u16 | version u8 | rice u8 | codes
//   version is 1, count at least 1, rice 0 to 34, crc of byte 4 to the end. codes: `count` Rice codes
//   (docs/formats/source-table.md) with the parameter `rice`, filled up to a byte: the first kept hash, then
//   each one's difference to the one before, less one.
//   mixed: version 2, the bits of a source in the place of the source, no checksum
// Threads: values. Errors: decoding never trusts a length; encoding throws std::bad_alloc.
// Limits: 1..kBatchKeysMax keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/numbers.h"
#include "base/status.h"
#include "source/bit_stream.h"
#include "source/pair.h"

namespace swale::source {

inline constexpr size_t kBatchHeaderBytes = 20;
inline constexpr uint32_t kBatchKeysMax = 65'535;
inline constexpr uint8_t kBatchVersion = 1;
inline constexpr uint8_t kMixedBatchVersion = 2;
inline constexpr uint32_t kMixedBatchKeysMax = 16'384;  // of up to eight bytes each
// The largest batch: kHashBits and four more bits a key, at the most.
inline constexpr size_t kBatchBytesMax = kBatchHeaderBytes + size_t{kBatchKeysMax} * 5;

struct BatchHeader {
  uint32_t bytes = 0;  // header included
  EpochNumber epoch = {};
  uint32_t source = 0;
  uint16_t count = 0;  // of keys
  uint8_t rice = 0;
  uint8_t source_bits = 0;  // of a mixed batch, of more than one source
};

// Appends the batch of these pairs, whose source is 0 here, to *out. Sorts them, and drops doubles. Requires
// 1..kBatchKeysMax of them, and a scratch of the same size.
void encode_batch(EpochNumber epoch, uint32_t source, std::span<Pair> pairs, std::span<Pair> scratch,
                  std::string* out);

// Appends the mixed batch of these pairs. Sorts them, and drops doubles. Requires 1..kMixedBatchKeysMax of
// them, sources below 2^source_bits, and a scratch of the same size. Returns its header.
BatchHeader encode_mixed_batch(uint32_t source_bits, std::span<Pair> pairs, std::span<Pair> scratch,
                               std::string* out);

// The header of the batch that `bytes` begin with; more may follow. kCorruption if it is none, or its
// checksum is wrong. Mixed batches are refused.
Result<BatchHeader> decode_batch_header(Bytes bytes);
// Of a batch, mixed or not, that has been verified before.
BatchHeader read_batch_header(const char* batch);

// Reads the hashes of one batch in order. The batch must stay where it is, with kSlackBytes readable bytes
// after it.
class BatchCursor {
 public:
  BatchCursor(const BatchHeader& header, const char* batch)
      : codes_(batch + kBatchHeaderBytes),
        end_((uint64_t{header.bytes} - kBatchHeaderBytes) * 8),
        left_(header.count),
        source_(header.source),
        step_(header.source_bits == 0 ? 1 : 0),
        rice_(header.rice),
        source_bits_(header.source_bits) {
    next();
  }

  bool at_end() const { return left_ == 0; }
  uint64_t hash() const { return hash_; }
  uint32_t source() const { return source_; }
  // The codes did not end where the batch does, or a hash is too large.
  bool malformed() const { return malformed_; }

  void advance() {
    hash_ += step_;
    --left_;
    next();
  }

  // Writes the pairs below `limit` to `out`, and returns the end of what was written.
  Pair* take_below(uint64_t limit, Pair* out) {
    while (left_ != 0 && hash_ < limit) {
      *out++ = make_pair(hash_, source_);
      advance();
    }
    return out;
  }

 private:
  void next() {
    if (left_ == 0) {
      if (end_ - bit_ >= 8) malformed_ = true;
      return;
    }
    uint64_t gap = 0;
    if (!read_rice(codes_, &bit_, end_, rice_, &gap) || gap >= kHashEnd - hash_) {
      malformed_ = true;
      left_ = 0;
      return;
    }
    hash_ += gap;
    if (source_bits_ != 0) next_source();
  }
  void next_source() {
    malformed_ = malformed_ || bit_ + source_bits_ > end_;
    source_ = static_cast<uint32_t>(load_bits(codes_, bit_, source_bits_));
    bit_ += source_bits_;
  }

  const char* codes_;
  uint64_t bit_ = 0;
  uint64_t end_;
  uint64_t hash_ = 0;  // until the first code is read, and after advance: the least that may come
  uint32_t left_;
  uint32_t source_;
  uint32_t step_;  // from a hash to the least that may follow
  uint8_t rice_;
  uint8_t source_bits_;
  bool malformed_ = false;
};

}  // namespace swale::source
