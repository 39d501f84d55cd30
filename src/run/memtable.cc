#include "run/memtable.h"

namespace swale::run {

Memtable::Memtable(Buffer arena, Buffer entries) : arena_(std::move(arena)), entries_(std::move(entries)) {
  arena_end_ = arena_.data() + arena_.size();
  entries_end_ = entries_begin() + entries_.size() / sizeof(uint64_t);
  clear();
}

Result<Memtable> Memtable::create(size_t arena_bytes, size_t records_max) {
  if (arena_bytes < kEncodedRecordBytesMax || arena_bytes > kArenaBytesMax || records_max == 0 ||
      records_max > kRecordsMax) {
    return invalid_argument("memtable of {} bytes and {} records: allowed are {}..{} bytes and 1..{} records",
                            arena_bytes, records_max, kEncodedRecordBytesMax, kArenaBytesMax, kRecordsMax);
  }
  SWALE_ASSIGN_OR_RETURN(Buffer arena, Buffer::allocate(arena_bytes, HugePages::kAdvise));
  SWALE_ASSIGN_OR_RETURN(Buffer entries,
                         Buffer::allocate(records_max * sizeof(uint64_t), HugePages::kAdvise));
  return Memtable(std::move(arena), std::move(entries));
}

size_t Memtable::memory_bytes(size_t arena_bytes, size_t records_max) {
  return round_up(arena_bytes, Buffer::kPageBytes) +
         round_up(records_max * sizeof(uint64_t), Buffer::kPageBytes);
}

void Memtable::clear() {
  next_ = arena_.data();
  next_entry_ = entries_begin();
  sizes_ = 0;
  other_sizes_ = 0;
  data_bytes_ = 0;
  digit_counts_.fill(0);
}

void Memtable::touch() {
  arena_.touch();
  entries_.touch();
}

}  // namespace swale::run
