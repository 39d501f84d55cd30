#include "run/run_sort.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

namespace swale::run {
namespace {

constexpr uint32_t kDigitBits = 11;
constexpr uint32_t kPrefixBits = 2 * kDigitBits;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr size_t kRadixRecordsMin = 1024;  // below this, counting 2 x 2,048 digits costs more than comparing
constexpr size_t kInsertionMax = 24;

size_t low_digit(uint64_t entry) { return entry >> (64 - kPrefixBits) & (kDigits - 1); }
size_t high_digit(uint64_t entry) { return entry >> (64 - kDigitBits); }

using Counts = std::array<uint32_t, kDigits>;

void counts_to_starts(Counts& counts) {
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

// The array is sorted by its top 22 bits; sorts each cluster of equal ones.
void sort_clusters(std::span<uint64_t> entries) {
  uint64_t* const end = entries.data() + entries.size();
  for (uint64_t* begin = entries.data(); begin < end;) {
    const uint64_t prefix = *begin >> (64 - kPrefixBits);
    uint64_t* next = begin + 1;
    bool ordered = true;
    for (; next < end && *next >> (64 - kPrefixBits) == prefix; ++next) ordered &= next[-1] < *next;
    if (!ordered) {
      if (static_cast<size_t>(next - begin) <= kInsertionMax) {
        insertion_sort(begin, next);
      } else {
        std::sort(begin, next);
      }
    }
    begin = next;
  }
}

}  // namespace

Result<RunScratch> RunScratch::create(size_t records_max) {
  SWALE_ASSIGN_OR_RETURN(Buffer entries,
                         Buffer::allocate(records_max * sizeof(uint64_t), HugePages::kAdvise));
  return RunScratch(std::move(entries));
}

size_t RunScratch::memory_bytes(size_t records_max) {
  return round_up(records_max * sizeof(uint64_t), Buffer::kPageBytes);
}

void sort_entries(std::span<uint64_t> entries, RunScratch& scratch) {
  assert(entries.size() <= scratch.records_max());
  if (entries.size() < kRadixRecordsMin) {
    std::sort(entries.begin(), entries.end());
    return;
  }
  Counts low{};
  Counts high{};
  for (const uint64_t entry : entries) {
    ++low[low_digit(entry)];
    ++high[high_digit(entry)];
  }
  counts_to_starts(low);
  counts_to_starts(high);
  uint64_t* const other = scratch.entries();
  for (const uint64_t entry : entries) other[low[low_digit(entry)]++] = entry;
  for (const uint64_t entry : std::span(other, entries.size())) entries[high[high_digit(entry)]++] = entry;
  sort_clusters(entries);
}

}  // namespace swale::run
