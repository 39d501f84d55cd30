// Stripe: the records of a range of hashes, as a StripeReader finds them and a SeriesMaker sorts them.
//
// Rows of uniform runs stay in the blocks that were read; other records are copied. Both lie in chunks, which
// a stripe shares with those beside it.
// Invariants: the parts of clusters come first, then those of logs by epoch, partition and run; rows of a
// part are in the order of its run: so records of one key and epoch are as appended. The first and the last
// part of a run may have rows beyond the stripe.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/uint128.h"

namespace swale::imd {

// A record: the key, then what it has of its value.
struct StripeRow {
  Hash hash;  // of the key
  const char* at;
  uint32_t index;  // of the epoch among those that are read
  uint32_t shape;  // row_bytes | key_bytes << 16 | large << 24: compared at once

  static constexpr uint32_t shape_of(size_t row_bytes, size_t key_bytes, bool large) {
    return static_cast<uint32_t>(row_bytes | key_bytes << 16 | (large ? size_t{1} << 24 : 0));
  }
  size_t row_bytes() const { return shape & 0xffff; }
  size_t key_bytes() const { return shape >> 16 & 0xff; }
  bool large() const { return shape >> 24 != 0; }  // the value lies elsewhere
  Bytes key() const { return {at, key_bytes()}; }
  Bytes stored() const { return {at + key_bytes(), row_bytes() - key_bytes()}; }
};
static_assert(sizeof(StripeRow) == 24);

// Neighbouring records of one run.
struct StripePart {
  Hash first = 0;  // of its first row and of its last one: known without a look at them
  Hash last = 0;
  const StripeRow* rows = nullptr;  // else:
  const char* uniform = nullptr;    // rows of equal sizes
  uint32_t count = 0;
  uint32_t index = 0;
  uint16_t row_bytes = 0;
  uint8_t key_bytes = 0;

  const void* begin() const { return rows != nullptr ? static_cast<const void*>(rows) : uniform; }
  Hash hash(size_t i) const {
    return rows != nullptr ? rows[i].hash : hash_bytes({uniform + i * row_bytes, key_bytes});
  }
  // Call when it has its rows.
  void know_ends() {
    first = hash(0);
    last = hash(count - 1);
  }
  // Its first `n`, at least one.
  StripePart front(uint32_t n) const {
    StripePart part = *this;
    part.count = n;
    part.last = hash(n - 1);
    return part;
  }
  // Without the first `n`.
  void drop(uint32_t n) {
    rows != nullptr ? static_cast<void>(rows += n) : static_cast<void>(uniform += size_t{n} * row_bytes);
    count -= n;
    if (count > 0) first = hash(0);
  }
};

// Memory of parts: a piece of a larger block, whose pages are huge where the system has them. Devices pin
// fewer of these, and rows that lie about in them need fewer translations.
struct StripeMemory {
  std::shared_ptr<Buffer> block;
  MutableBytes bytes;

  bool has(const void* at) const {
    const char* const byte = static_cast<const char*>(at);
    return byte >= bytes.data() && byte < bytes.data() + bytes.size();
  }
};
using StripeChunk = std::shared_ptr<StripeMemory>;

struct HashRange {
  Hash first = 0;
  Hash last = ~Hash{0};

  // Of which choose(hash, n) gives this index. Requires index < n.
  static HashRange of(uint32_t index, uint32_t n) {
    const auto begin = [n](uint32_t at) {
      return static_cast<Hash>(((static_cast<Uint128>(at) << 64) + n - 1) / n);
    };
    return {begin(index), index + 1 == n ? ~Hash{0} : begin(index + 1) - 1};
  }
};

struct Stripe {
  Hash first = 0;
  Hash last = 0;
  uint64_t rows_max = 0;    // of all parts, those beyond the stripe included
  uint64_t read_bytes = 0;  // from storage, on the way to it
  std::vector<StripePart> parts;
  std::vector<StripeChunk> memory;

  bool has(Hash hash) const { return hash - first <= last - first; }
  void add(const StripePart& part) {
    parts.push_back(part);
    rows_max += part.count;
  }
};

}  // namespace swale::imd
