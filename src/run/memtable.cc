#include "run/memtable.h"

namespace swale::run {

Memtable::Memtable(Buffer arena, Buffer entries, size_t records_max)
    : arena_(std::move(arena)), entries_(std::move(entries)), records_max_(records_max) {}

Result<Memtable> Memtable::create(size_t arena_bytes, size_t records_max) {
  if (arena_bytes < kEncodedRecordBytesMax || arena_bytes > kArenaBytesMax || records_max == 0 ||
      records_max > kRecordsMax) {
    return invalid_argument("memtable of {} bytes and {} records: allowed are {}..{} bytes and 1..{} records",
                            arena_bytes, records_max, kEncodedRecordBytesMax, kArenaBytesMax, kRecordsMax);
  }
  SWALE_ASSIGN_OR_RETURN(Buffer arena, Buffer::allocate(arena_bytes, HugePages::kAdvise));
  SWALE_ASSIGN_OR_RETURN(Buffer entries,
                         Buffer::allocate(records_max * sizeof(uint64_t), HugePages::kAdvise));
  return Memtable(std::move(arena), std::move(entries), records_max);
}

size_t Memtable::memory_bytes(size_t arena_bytes, size_t records_max) {
  return round_up(arena_bytes, Buffer::kPageBytes) +
         round_up(records_max * sizeof(uint64_t), Buffer::kPageBytes);
}

const char* Memtable::append(Hash rest, Bytes key, Bytes value) {
  const size_t encoded_bytes = encoded_record_bytes(key.size(), value.size());
  if (!has_room(encoded_bytes)) return nullptr;
  const char* const end = encode_record(key, value, arena_.data() + bytes_);
  take(rest, key.size(), value.size(), encoded_bytes);
  return end - key.size() - value.size();
}

void Memtable::clear() {
  count_ = 0;
  bytes_ = 0;
  data_bytes_ = 0;
  digit_counts_.fill(0);
  sizes_ = 0;
  other_sizes_ = 0;
}

void Memtable::touch() {
  arena_.touch();
  entries_.touch();
}

}  // namespace swale::run
