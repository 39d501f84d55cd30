#include "run/run_sort.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace swale::run {
namespace {

constexpr uint32_t kDigitBits = 7;
constexpr uint32_t kPrefixBits = Memtable::kBinBits + 2 * kDigitBits;
constexpr uint32_t kLowShift = 64 - kPrefixBits;
constexpr uint32_t kHighShift = kLowShift + kDigitBits;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr size_t kInsertionMax = 24;
// Bins of up to so many entries are sorted through 16 KiB of the stack, which stay in the cache.
constexpr size_t kLocalMax = 2048;

using Starts = std::array<uint32_t, kDigits>;

template <uint32_t kShift>
size_t digit(uint64_t entry) {
  return entry >> kShift & (kDigits - 1);
}

void counts_to_starts(Starts& counts) {
  uint32_t start = 0;
  for (uint32_t& count : counts) {
    const uint32_t next = start + count;
    count = start;
    start = next;
  }
}

void insertion_sort(uint64_t* begin, uint64_t* end) {
  for (uint64_t* at = begin + 1; at < end; ++at) {
    const uint64_t entry = *at;
    uint64_t* hole = at;
    for (; hole > begin && hole[-1] > entry; --hole) *hole = hole[-1];
    *hole = entry;
  }
}

// Requires an array sorted by its top 22 bits; sorts each cluster of equal prefixes that is not in order yet.
void repair_clusters(uint64_t* const begin, uint64_t* const end) {
  for (uint64_t* at = begin + 1; at < end; ++at) {
    if (at[-1] <= *at) [[likely]]
      continue;
    const uint64_t prefix = *at >> kLowShift;
    uint64_t* first = at - 1;
    while (first > begin && first[-1] >> kLowShift == prefix) --first;
    uint64_t* last = at + 1;
    while (last < end && *last >> kLowShift == prefix) ++last;
    if (static_cast<size_t>(last - first) <= kInsertionMax) {
      insertion_sort(first, last);
    } else {
      std::sort(first, last);
    }
    at = last - 1;
  }
}

// Two passes over equal top digits: to `other` and back.
void radix_sort(uint64_t* const entries, const size_t size, uint64_t* const other) {
  Starts low{};
  Starts high{};
  for (size_t i = 0; i < size; ++i) {
    ++low[digit<kLowShift>(entries[i])];
    ++high[digit<kHighShift>(entries[i])];
  }
  counts_to_starts(low);
  counts_to_starts(high);
  for (size_t i = 0; i < size; ++i) other[low[digit<kLowShift>(entries[i])]++] = entries[i];
  for (size_t i = 0; i < size; ++i) entries[high[digit<kHighShift>(other[i])]++] = other[i];
}

}  // namespace

Result<RunScratch> RunScratch::create(size_t records_max) {
  // Small pages: only the first few are used, unless one bin has most of the records.
  SWALE_ASSIGN_OR_RETURN(Buffer entries, Buffer::allocate(records_max * sizeof(uint64_t)));
  return RunScratch(std::move(entries));
}

size_t RunScratch::memory_bytes(size_t records_max) {
  return round_up(records_max * sizeof(uint64_t), Buffer::kPageBytes);
}

void sort_bin(std::span<uint64_t> entries) {
  uint64_t* const begin = entries.data();
  uint64_t* const end = begin + entries.size();
  if (entries.size() < 2) return;
  if (entries.size() <= kInsertionMax) {
    insertion_sort(begin, end);
  } else if (entries.size() <= kLocalMax) {
    std::array<uint64_t, kLocalMax> local;  // not initialised
    radix_sort(begin, entries.size(), local.data());
    repair_clusters(begin, end);
  } else if (!std::is_sorted(begin, end)) {  // a writer whose keys come in the order of hashes has filled it
    std::sort(begin, end);
  }
}

// Moves the remaining entries to the front, and appends bins.
void EntrySorter::refill(size_t count) {
  std::move(entries_ + begin_, entries_ + end_, entries_);
  end_ -= begin_;
  begin_ = 0;
  for (; end_ < count && next_bin_ < Memtable::kBins; ++next_bin_) {
    const size_t size = memtable_.collect(next_bin_, entries_ + end_);
    sort_bin({entries_ + end_, size});
    end_ += size;
  }
  fetcher_.skip_to(next_bin_);
}

}  // namespace swale::run
