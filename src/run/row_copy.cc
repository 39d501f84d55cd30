#include "run/row_copy.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/copy.h"
#include "base/hash.h"

namespace swale::run {
namespace {

// Two loops: a single one would need more values than there are registers. So would one that fetches after
// each row.
template <ptrdiff_t kRowsPerFetch, class CopyRow, class DigestRow>
uint64_t copy_with(const RowCopy& copy, SketchBuilder* sketch_builder, Memtable::RowFetcher* row_fetcher,
                   CopyRow copy_row, DigestRow digest_row) {
  SketchBuilder sketch = *sketch_builder;       // in registers
  Memtable::RowFetcher fetcher = *row_fetcher;  // likewise
  const size_t row_bytes = copy.row_bytes;
  const char* const rows = copy.rows;
  const uint64_t* entry = copy.entries;
  const uint64_t* const end = entry + copy.count;
  char* out = copy.out;
  while (entry < end) {
    const uint64_t* const first = entry;
    const uint64_t* const last = end - entry > kRowsPerFetch ? entry + kRowsPerFetch : end;
    for (; entry < last; ++entry, out += row_bytes) {
      const uint64_t row = *entry;
      copy_row(out, rows + (row & kEntryOffsetMask), row_bytes);
      sketch.add(row);
    }
    fetcher.fetch(static_cast<size_t>(last - first) * (Memtable::kRowHeadBytes + row_bytes));
  }
  *sketch_builder = sketch;
  *row_fetcher = fetcher;
  uint64_t digest = 0;
  for (const char* row = copy.out; row < out; row += row_bytes) digest += digest_row(row, row_bytes);
  return digest;
}

using RowCopier = uint64_t (*)(const RowCopy& copy, SketchBuilder* sketch, Memtable::RowFetcher* fetcher);

// For rows of 16 * kPairs bytes; if kRest, of up to 15 bytes more.
template <size_t kPairs, bool kRest>
uint64_t copy_rows_of(const RowCopy& copy, SketchBuilder* sketch, Memtable::RowFetcher* fetcher) {
  return copy_with<8>(
      copy, sketch, fetcher,
      [](char* to, const char* from, size_t row_bytes) { copy_pairs<kPairs, kRest>(to, from, row_bytes); },
      [&](const char* row, size_t row_bytes) {
        return record_digest_of<kPairs, kRest>(row, row_bytes, copy.key_bytes);
      });
}

uint64_t copy_rows_of_any_size(const RowCopy& copy, SketchBuilder* sketch, Memtable::RowFetcher* fetcher) {
  return copy_with<1>(copy, sketch, fetcher, copy_bytes, [&](const char* row, size_t row_bytes) {
    return swale::record_digest({row, row_bytes}, copy.key_bytes);
  });
}

constexpr size_t kPairsMax = 8;

template <size_t... kPairs>
constexpr auto copiers(std::index_sequence<kPairs...>) {
  return std::array{std::array{&copy_rows_of<kPairs + 1, false>, &copy_rows_of<kPairs + 1, true>}...};
}

RowCopier copier_for(uint32_t row_bytes) {
  constexpr auto kCopiers = copiers(std::make_index_sequence<kPairsMax>());
  const uint32_t pairs = row_bytes / 16;
  if (pairs == 0 || pairs > kPairsMax) return copy_rows_of_any_size;
  return kCopiers[pairs - 1][row_bytes % 16 != 0 ? 1 : 0];
}

}  // namespace

uint64_t copy_rows(const RowCopy& copy, SketchBuilder* sketch, Memtable::RowFetcher* fetcher) {
  return copier_for(copy.row_bytes)(copy, sketch, fetcher);
}

}  // namespace swale::run
