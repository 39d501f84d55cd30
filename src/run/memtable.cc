#include "run/memtable.h"

#include <algorithm>
#include <cassert>

namespace swale::run {
namespace {

constexpr size_t kLineBytes = 64;
// When the memtable is full, a bin's last chunk is half empty on average: 6 % of the arena with so many
// chunks. Chunks of half the size would waste 3 %, but cost half a nanosecond per record.
constexpr size_t kChunksPerArena = 2048;

// An odd number of cache lines, so that bins that fill alike do not compete for the same few cache sets.
size_t chunk_bytes_for(size_t arena_bytes) {
  return (arena_bytes / kChunksPerArena / kLineBytes | 1) * kLineBytes;
}

}  // namespace

Memtable::Memtable(Buffer arena, size_t records_max)
    : arena_(std::move(arena)), records_max_(records_max), chunk_bytes_(chunk_bytes_for(arena_.size())) {
  clear();
}

Result<Memtable> Memtable::create(size_t arena_bytes, size_t records_max) {
  if (arena_bytes < kArenaBytesMin || arena_bytes > kArenaBytesMax || records_max == 0 ||
      records_max > kRecordsMax) {
    return invalid_argument("memtable of {} bytes and {} records: allowed are {}..{} bytes and 1..{} records",
                            arena_bytes, records_max, kArenaBytesMin, kArenaBytesMax, kRecordsMax);
  }
  SWALE_ASSIGN_OR_RETURN(Buffer arena, Buffer::allocate(arena_bytes, HugePages::kAdvise));
  return Memtable(std::move(arena), records_max);
}

size_t Memtable::memory_bytes(size_t arena_bytes) { return round_up(arena_bytes, Buffer::kPageBytes); }

void Memtable::clear() {
  records_left_ = records_max_;
  arena_used_ = 0;
  arena_limit_ = arena_.size();
  sizes_ = 0;
  other_sizes_ = 0;
  data_bytes_ = 0;
  long_size_bytes_ = 0;
  bins_.fill(Bin{});
}

void Memtable::limit(size_t arena_bytes) {
  assert(empty());
  arena_limit_ = std::clamp(arena_bytes, kArenaBytesMin, arena_.size());
}

bool Memtable::add_chunk(Bin& bin, size_t row_bytes, uint64_t sizes) {
  if (records_left_ == 0) return false;
  const size_t bytes = std::max(chunk_bytes_, round_up(kChunkHeadBytes + row_bytes, kLineBytes));
  if (arena_limit_ - arena_used_ < bytes) return false;
  if (empty()) sizes_ = sizes;
  const auto offset = static_cast<uint32_t>(arena_used_);
  if (bin.end == nullptr) {
    bin.first = offset;
  } else {
    put_u32(arena_.data() + bin.last, offset);
    put_u32(arena_.data() + bin.last + 4, static_cast<uint32_t>(bin.next - arena_.data()));
  }
  bin.last = offset;
  bin.next = arena_.data() + offset + kChunkHeadBytes;
  bin.end = arena_.data() + offset + bytes;
  arena_used_ += bytes;
  return true;
}

size_t Memtable::collect(uint32_t bin_index, uint64_t* out) const {
  const Bin& bin = bins_[bin_index];
  if (bin.end == nullptr) return 0;
  constexpr size_t kAhead = 512;  // prefetch distance in bytes of a chunk's rows
  const char* const arena = arena_.data();
  const size_t uniform_row_bytes = uniform() ? kRowHeadBytes + key_bytes() + value_bytes() : 0;
  uint64_t* entry = out;
  for (uint32_t chunk = bin.first;;) {
    const bool last = chunk == bin.last;
    const uint32_t next_chunk = last ? chunk : get_u32(arena + chunk);
    const char* const end = last ? bin.next : arena + get_u32(arena + chunk + 4);
    for (size_t line = 0; line < kAhead; line += kLineBytes) __builtin_prefetch(arena + next_chunk + line);
    const char* row = arena + chunk + kChunkHeadBytes;
    while (row < end) {
      __builtin_prefetch(row + kAhead);
      const uint64_t head = get_u64(row);
      *entry++ = (head & ~kEntryOffsetMask) | static_cast<uint64_t>(row - arena);
      row += uniform_row_bytes != 0 ? uniform_row_bytes
                                    : kRowHeadBytes + key_bytes_of(head) + value_bytes_of(head);
    }
    if (last) return static_cast<size_t>(entry - out);
    chunk = next_chunk;
  }
}

// The first bin from `bin` on that has rows.
void Memtable::RowFetcher::begin(uint32_t bin) {
  while (bin < kBins && memtable_->bins_[bin].end == nullptr) ++bin;
  bin_ = bin;
  if (bin < kBins) {
    begin_chunk(memtable_->bins_[bin].first);
  } else {
    at_ = end_ = 0;
  }
}

void Memtable::RowFetcher::begin_chunk(uint32_t offset) {
  chunk_ = offset;
  at_ = offset;
  end_ = offset + memtable_->chunk_bytes_;
}

void Memtable::RowFetcher::next_chunk() {
  if (end_ == 0) {
    at_ = 0;
  } else if (chunk_ == memtable_->bins_[bin_].last) {
    begin(bin_ + 1);
  } else {
    begin_chunk(get_u32(arena_ + chunk_));
  }
}

}  // namespace swale::run
