// Memtable: the records of one way that will become the next run, in arrival order. FL-Tree's in-memory write
// buffer (deltafs-streaming-2020, section 4.1).
//
// Threads: none; the owner serialises calls. No call but create allocates.
// Format of an entry: top 40 bits of the record's rest | 24 bits byte offset in the arena. One sort of these
//   integers yields hash order, and arrival order among equal hashes.
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
    const size_t encoded_bytes = record.encoded.size();
    if (count_ == records_max_ || arena_.size() - bytes_ < encoded_bytes) return false;
    if (count_ == 0) {
      key_bytes_ = static_cast<uint32_t>(record.key.size());
      value_bytes_ = static_cast<uint32_t>(record.value.size());
      uniform_ = true;
    } else {
      uniform_ = uniform_ && record.key.size() == key_bytes_ && record.value.size() == value_bytes_;
    }
    std::memcpy(arena_.data() + bytes_, record.encoded.data(), encoded_bytes);
    entries_begin()[count_++] = (rest & ~kEntryOffsetMask) | bytes_;
    bytes_ += encoded_bytes;
    data_bytes_ += record.key.size() + record.value.size();
    return true;
  }

  size_t count() const { return count_; }
  size_t bytes() const { return bytes_; }              // encoded
  uint64_t data_bytes() const { return data_bytes_; }  // keys and values
  bool empty() const { return count_ == 0; }

  // All records have the same key size and the same value size (also when empty).
  bool uniform() const { return uniform_; }
  uint32_t key_bytes() const { return key_bytes_; }  // of the first record
  uint32_t value_bytes() const { return value_bytes_; }

  const char* arena() const { return arena_.data(); }
  Bytes encoded_from(uint64_t offset) const { return {arena_.data() + offset, bytes_ - offset}; }
  // The run builder sorts them in place.
  std::span<uint64_t> entries() { return {entries_begin(), count_}; }

  void clear();
  void touch();  // back all pages now: a first touch in the hot path costs up to 11 us a page

 private:
  Memtable(Buffer arena, Buffer entries, size_t records_max);

  uint64_t* entries_begin() { return reinterpret_cast<uint64_t*>(entries_.data()); }

  Buffer arena_;
  Buffer entries_;
  size_t records_max_;
  size_t count_ = 0;
  size_t bytes_ = 0;
  uint64_t data_bytes_ = 0;
  uint32_t key_bytes_ = 0;
  uint32_t value_bytes_ = 0;
  bool uniform_ = true;
};

}  // namespace swale::run
