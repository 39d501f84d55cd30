// Memtable: the records of one way that will become the next run, in arrival order. FL-Tree's in-memory write
// buffer (deltafs-streaming-2020, section 4.1).
//
// Threads: none; the owner serialises calls. No call but create allocates.
// Format of an entry: top 40 bits of the record's rest | 24 bits byte offset in the arena. One sort of these
//   integers yields hash order, and arrival order among equal hashes. Their top digits are counted as they arrive,
//   which spares the sort its first pass (run_sort.h).
// Invariants: (1) entries name records in arrival order, encoded as in record.h, back to back in the arena;
//   (2) a refused append changed nothing.
// Limits: arena <= 16 MiB (24-bit offsets), records <= 2^20.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/format.h"
#include "run/record.h"
#include "run/run_sort.h"

namespace swale::run {

inline constexpr uint32_t kEntryOffsetBits = 24;
inline constexpr uint64_t kEntryOffsetMask = (uint64_t{1} << kEntryOffsetBits) - 1;

class Memtable {
 public:
  static constexpr size_t kArenaBytesMax = 16 * kMiB;
  static constexpr size_t kRecordsMax = kRunRecordsMax;

  // kInvalidArgument beyond the limits; kResourceExhausted without memory.
  static Result<Memtable> create(size_t arena_bytes, size_t records_max);
  static size_t memory_bytes(size_t arena_bytes, size_t records_max);

  // False: full. `record` as parse_record gave it (`encoded` is what is kept).
  bool append(Hash rest, const RecordView& record) {
    char* const at = room_for(record.encoded.size());
    if (at == nullptr) return false;
    copy_bytes(at, record.encoded.data(), record.encoded.size());
    take(rest, record.key.size(), record.value.size(), record.encoded.size());
    return true;
  }
  // The same for a record that is not encoded yet. Requires sizes within the limits of record.h. Returns where it now
  // lies, key and value behind each other; nullptr: full.
  const char* append(Hash rest, Bytes key, Bytes value) {
    const size_t encoded_bytes = encoded_record_bytes(key.size(), value.size());
    char* const at = room_for(encoded_bytes);
    if (at == nullptr) return nullptr;
    encode_record(key, value, at);
    take(rest, key.size(), value.size(), encoded_bytes);
    return next_ - key.size() - value.size();
  }

  size_t count() const { return static_cast<size_t>(next_entry_ - entries_begin()); }
  size_t bytes() const { return static_cast<size_t>(next_ - arena_.data()); }  // encoded
  uint64_t data_bytes() const { return data_bytes_; }                          // keys and values
  bool empty() const { return count() == 0; }

  // All records have the same key size and the same value size (also when empty).
  bool uniform() const { return other_sizes_ == 0; }
  uint32_t key_bytes() const { return static_cast<uint32_t>(sizes_ >> 32); }  // of the first record
  uint32_t value_bytes() const { return static_cast<uint32_t>(sizes_); }

  const char* arena() const { return arena_.data(); }
  Bytes encoded_from(uint64_t offset) const { return {arena_.data() + offset, bytes() - offset}; }
  // The run builder reorders them.
  std::span<uint64_t> entries() { return {entries_begin(), count()}; }
  const DigitCounts& digit_counts() const { return digit_counts_; }

  void clear();
  void touch();  // back all pages now: a first touch in the hot path costs up to 11 us a page

 private:
  Memtable(Buffer arena, Buffer entries);

  uint64_t* entries_begin() const { return reinterpret_cast<uint64_t*>(const_cast<char*>(entries_.data())); }
  char* room_for(size_t encoded_bytes) const {
    const bool room = next_entry_ != entries_end_ && static_cast<size_t>(arena_end_ - next_) >= encoded_bytes;
    return room ? next_ : nullptr;
  }
  // Accounts for a record that lies encoded at the arena's end.
  void take(Hash rest, size_t key_bytes, size_t value_bytes, size_t encoded_bytes) {
    const uint64_t sizes = uint64_t{key_bytes} << 32 | value_bytes;
    if (next_entry_ == entries_begin()) sizes_ = sizes;
    other_sizes_ |= sizes ^ sizes_;
    const uint64_t entry = (rest & ~kEntryOffsetMask) | static_cast<uint64_t>(next_ - arena_.data());
    *next_entry_++ = entry;
    ++digit_counts_[top_digit(entry)];
    next_ += encoded_bytes;
    data_bytes_ += key_bytes + value_bytes;
  }

  Buffer arena_;
  Buffer entries_;
  char* next_;
  char* arena_end_;
  uint64_t* next_entry_;
  uint64_t* entries_end_;
  uint64_t sizes_ = 0;        // of the first record
  uint64_t other_sizes_ = 0;  // bits in which others differ
  uint64_t data_bytes_ = 0;
  DigitCounts digit_counts_{};
};

}  // namespace swale::run
