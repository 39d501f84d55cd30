// Memtable: the records of one way that will become the next run. FL-Tree's in-memory write buffer
// (deltafs-streaming-2020, section 4.1).
//
// Records are binned as they arrive, by the top 8 bits of their hash; each bin is a chain of chunks of the
// arena. So the run builder reads consecutive memory that fits the cache, one bin at a time; in arrival order
// each record would cost two cache misses (docs/design/pipeline.md, "Memtables are bins").
//
// Threads: none; the owner serialises calls. No call but create allocates.
// Format of a row: u64 head (top 40 bits of the record's rest | 8 bits key_bytes | 16 bits value_bytes, in
// the code of
//   record.h that tells large records from others) | key | value.
//   Chunks are allocated in ascending order, so that within a bin a higher offset is a later arrival.
// Invariants: (1) a bin's rows lie in arrival order along its chain; (2) a refused append changed nothing.
// Limits: arena <= 16 MiB (24-bit offsets), records <= 2^20.
#pragma once

#include <array>
#include <cstdint>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/coding.h"
#include "base/cpu.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/format.h"
#include "run/record.h"
#include "run/run_shape.h"

namespace swale::run {

// A sort entry: top 40 bits of the record's rest | 24 bits offset of its row in the arena. The order of these
// integers is hash order, and arrival order among equal hashes.
inline constexpr uint32_t kEntryOffsetBits = 24;
inline constexpr uint64_t kEntryOffsetMask = (uint64_t{1} << kEntryOffsetBits) - 1;

class Memtable {
 public:
  static constexpr size_t kArenaBytesMax = 16 * kMiB;
  static constexpr size_t kRecordsMax = kRunRecordsMax;
  static constexpr size_t kRowHeadBytes = 8;
  // u32 offset of the bin's next chunk, u32 end of this one's rows
  static constexpr size_t kChunkHeadBytes = 8;
  // Enough for any one record.
  static constexpr size_t kArenaBytesMin =
      round_up(kChunkHeadBytes + kRowHeadBytes + kKeyBytesMax + kStoredBytesMax, 64);
  static constexpr uint32_t kBinBits = 8;
  static constexpr uint32_t kBins = 1u << kBinBits;

  // kInvalidArgument beyond the limits; kResourceExhausted without memory.
  static Result<Memtable> create(size_t arena_bytes, size_t records_max);
  static size_t memory_bytes(size_t arena_bytes);

  // Adds a record whose sizes are within the limits of record.h. Returns the place of its key, which its
  // value follows; nullptr: full.
  const char* append(Hash rest, Bytes key, Bytes value) {
    char* const at = room_for(rest, key.size(), value.size(), value.size());
    if (at == nullptr) return nullptr;
    copy_bytes(at, key.data(), key.size());
    copy_bytes(at + key.size(), value.data(), value.size());
    return at;
  }
  // The same for a record that has_quick_sizes. Short code that only takes what fits after the last row of
  // its bin, and adds the record's digest (hash.h) to `digest`. False: nothing was done; call append.
  [[gnu::always_inline]] bool append_quickly(Hash rest, const char* key, Bytes value, uint64_t* digest) {
    Bin& bin = bins_[rest >> (64 - kBinBits)];
    const size_t row_bytes = kRowHeadBytes + kQuickKeyBytes + value.size();
    if (static_cast<size_t>(bin.end - bin.next) < row_bytes || records_left_ == 0) [[unlikely]]
      return false;
    char* const at = add_row(bin, rest, kQuickKeyBytes, value.size(), value.size());
    *digest += copy_and_digest(at, key, value);
    return true;
  }
  // As append, for a record from parse_record, which may be a large one.
  const char* append(Hash rest, const RecordView& record) {
    const size_t value_code = record.value.size() + (is_large(record) ? kValueBytesMax : 0);
    char* const at = room_for(rest, record.key.size(), record.value.size(), value_code);
    if (at == nullptr) return nullptr;
    copy_bytes(at, record.key.data(), record.key.size() + record.value.size());
    return at;
  }

  size_t count() const { return records_max_ - records_left_; }
  uint64_t data_bytes() const { return data_bytes_; }                                      // keys and values
  uint64_t encoded_bytes() const { return data_bytes_ + 2 * count() + long_size_bytes_; }  // as in record.h
  bool empty() const { return records_left_ == records_max_; }

  // All records have the same key size and value size, and all or none are large (true also when empty).
  bool uniform() const { return other_sizes_ == 0; }
  uint32_t key_bytes() const { return key_bytes_of(sizes_); }  // of the first record
  uint32_t value_bytes() const { return value_bytes_of(sizes_); }
  bool large() const { return value_code_of(sizes_) > kValueBytesMax; }
  RunShape shape() const {
    return {count(), data_bytes(), encoded_bytes(), uniform(), large(), key_bytes(), value_bytes()};
  }

  // Writes an entry for each record of a bin to `out`, in arrival order. Returns their number.
  size_t collect(uint32_t bin, uint64_t* out) const;
  // Prefetches the rows of later bins, in order, while the caller works on this one: another core wrote them,
  // and its cache lines take longer to arrive than collect takes to read them.
  class RowFetcher {
   public:
    // The memtable must outlive it, unchanged.
    explicit RowFetcher(const Memtable& memtable) : memtable_(&memtable), arena_(memtable.arena_.data()) {}
    // Fetches no bin before `bin` from now on.
    void skip_to(uint32_t bin) {
      if (bin_ < bin) begin(bin);
    }
    // The bin whose rows are being fetched; kBins after the last one.
    uint32_t bin() const { return bin_; }
    // Fetches about so many more bytes of rows.
    void fetch(size_t bytes) {
      const size_t until = at_ + bytes;
      for (; at_ < until; at_ += kFetchBytes) __builtin_prefetch(arena_ + at_, 0, 2);
      at_ = until;
      if (at_ >= end_) [[unlikely]]
        next_chunk();
    }

   private:
    static constexpr size_t kFetchBytes = 64;
    void begin(uint32_t bin);
    void begin_chunk(uint32_t offset);
    void next_chunk();

    const Memtable* memtable_;
    const char* arena_;
    size_t at_ = 0;  // offsets in the arena; both 0: the end
    size_t end_ = 0;
    uint32_t bin_ = 0;    // is being fetched, or was the last one
    uint32_t chunk_ = 0;  // offset
  };
  // The record of an entry from collect: as parse_record would return it, and its sizes as encoded.
  struct Row {
    RecordView view;
    uint32_t value_code;
  };
  Row row(uint64_t entry) const {
    const char* const at = rows() + (entry & kEntryOffsetMask);
    const uint64_t head = get_u64(at - kRowHeadBytes);
    const uint32_t key_bytes = key_bytes_of(head);
    return {{.key = {at, key_bytes}, .value = {at + key_bytes, value_bytes_of(head)}, .encoded = {}},
            value_code_of(head)};
  }
  // Key and value of an entry's record lie at rows() + its offset.
  const char* rows() const { return arena_.data() + kRowHeadBytes; }

  void clear();
  // Limits the arena to so many bytes until clear(); one record of any size always fits. Requires an empty
  // memtable.
  void limit(size_t arena_bytes);
  size_t arena_bytes() const { return arena_.size(); }
  void touch() {
    arena_.touch();
  }  // backs all pages now: a first touch in the hot path costs up to 11 us per page

 private:
  struct Bin {
    char* next;      // place of its next row
    char* end;       // of its last chunk; next == end == nullptr: it has none yet
    uint32_t first;  // offset of its first chunk
    uint32_t last;   // of its last one
  };
  static constexpr uint32_t kValueBits = 16;
  static_assert(kKeyBytesMax < 1u << (kEntryOffsetBits - kValueBits) &&
                kValueBytesMax + kStoredBytesMax < 1u << kValueBits);
  static uint64_t sizes_of(size_t key_bytes, size_t value_code) {
    return uint64_t{key_bytes} << kValueBits | value_code;
  }
  static uint32_t key_bytes_of(uint64_t head) { return (head & kEntryOffsetMask) >> kValueBits; }
  static uint32_t value_code_of(uint64_t head) { return head & ((1u << kValueBits) - 1); }
  static uint32_t value_bytes_of(uint64_t head) {
    const uint32_t code = value_code_of(head);
    return code > kValueBytesMax ? code - uint32_t{kValueBytesMax} : code;
  }

  // Fetch distance after a bin's last row: this memory is written when the bin gets its next record.
  static constexpr size_t kFetchAheadBytes = 64;

  Memtable(Buffer arena, size_t records_max);

  // Accounts for a record and returns the place for its key and value; nullptr, with nothing changed: full.
  char* room_for(Hash rest, size_t key_bytes, size_t value_bytes, size_t value_code) {
    Bin& bin = bins_[rest >> (64 - kBinBits)];
    const size_t row_bytes = kRowHeadBytes + key_bytes + value_bytes;
    if (static_cast<size_t>(bin.end - bin.next) < row_bytes || records_left_ == 0) [[unlikely]] {
      if (!add_chunk(bin, row_bytes, sizes_of(key_bytes, value_code))) return nullptr;
    }
    if (!short_sizes(key_bytes, value_code)) [[unlikely]] {
      long_size_bytes_ += varint_bytes(key_bytes) + varint_bytes(value_code) - 2;
    }
    return add_row(bin, rest, key_bytes, value_bytes, value_code);
  }
  // Requires space for the row in the bin's last chunk.
  char* add_row(Bin& bin, Hash rest, size_t key_bytes, size_t value_bytes, size_t value_code) {
    const uint64_t sizes = sizes_of(key_bytes, value_code);
    char* const row = bin.next;
    bin.next = row + kRowHeadBytes + key_bytes + value_bytes;
    prefetch_for_write(bin.next + kFetchAheadBytes);
    put_u64(row, (rest & ~kEntryOffsetMask) | sizes);
    if (sizes != sizes_) other_sizes_ |= sizes ^ sizes_;
    data_bytes_ += key_bytes + value_bytes;
    --records_left_;
    return row + kRowHeadBytes;
  }
  // True: the bin's last chunk has space for one more row. False: no chunk is left.
  bool add_chunk(Bin& bin, size_t row_bytes, uint64_t sizes);

  Buffer arena_;
  size_t records_max_;
  size_t chunk_bytes_;
  size_t records_left_ = 0;
  size_t arena_used_ = 0;         // by chunks
  size_t arena_limit_ = 0;        // for chunks
  uint64_t sizes_ = 0;            // of the first record, as in a row's head
  uint64_t other_sizes_ = 0;      // bits in which other records differ from sizes_
  uint64_t data_bytes_ = 0;       // keys and values
  uint64_t long_size_bytes_ = 0;  // bytes of encoded headers beyond 2 per record
  std::array<Bin, kBins> bins_;
};

}  // namespace swale::run
