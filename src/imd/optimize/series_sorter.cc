#include "imd/optimize/series_sorter.h"

#include <algorithm>
#include <utility>

#include "imd/read/reader_sort.h"

namespace swale::imd {
namespace {

constexpr size_t kRowsAhead = 16;  // prefetched

}  // namespace

SeriesSorter::SeriesSorter(ResolveFn resolve, EmitFn emit)
    : resolve_(std::move(resolve)),
      emit_(std::move(emit)),
      builder_([this](Bytes series) { return emit_(key_, series); }) {}

void SeriesSorter::add(const StripeRecord& record) {
  order_.push_back({record.hash, rows_.size(), record.index, static_cast<uint32_t>(record.row.size()),
                    static_cast<uint8_t>(record.key_bytes), record.large});
  rows_.insert(rows_.end(), record.row.begin(), record.row.end());
}

// Both sorts keep the order of records with equal hashes. A stripe has few hashes that agree in the upper
// bits.
void SeriesSorter::sort() {
  constexpr int kLowBits = 24;
  radix_sort(order_, scratch_, [](const Row& row) { return row.hash >> kLowBits; });
  for (auto at = order_.begin(); at != order_.end();) {
    const auto other = [&](const Row& row) { return row.hash >> kLowBits != at->hash >> kLowBits; };
    const auto end = std::find_if(at + 1, order_.end(), other);
    const auto less = [](const Row& a, const Row& b) { return a.hash < b.hash; };
    if (!std::is_sorted(at, end, less)) std::stable_sort(at, end, less);
    at = end;
  }
}

Status SeriesSorter::emit() {
  sort();
  for (size_t begin = 0; begin < order_.size();) {
    size_t end = begin;
    bool one_key = true;
    for (; end < order_.size() && order_[end].hash == order_[begin].hash; ++end) {
      if (end + kRowsAhead < order_.size()) __builtin_prefetch(rows_.data() + order_[end + kRowsAhead].at);
      one_key = one_key && key_of(order_[end]) == key_of(order_[begin]);
    }
    const std::span<Row> rows(order_.data() + begin, end - begin);
    begin = end;
    if (one_key) {
      SWALE_RETURN_IF_ERROR(emit_key(rows));
      continue;
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const Row& a, const Row& b) { return key_of(a) < key_of(b); });
    for (size_t from = 0; from < rows.size();) {
      size_t to = from;
      while (to < rows.size() && key_of(rows[to]) == key_of(rows[from])) ++to;
      SWALE_RETURN_IF_ERROR(emit_key(rows.subspan(from, to - from)));
      from = to;
    }
  }
  order_.clear();
  rows_.clear();
  return {};
}

// A resolved value that fits into no series by itself stays where it is.
Status SeriesSorter::emit_key(std::span<const Row> rows) {
  key_ = key_of(rows.front());
  for (const Row& row : rows) {
    const Bytes stored = value_of(row);
    if (!row.large || !resolve_) {
      SWALE_RETURN_IF_ERROR(
          builder_.add(row.index, row.large ? SeriesKind::kPoints : SeriesKind::kWhole, stored));
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(const std::string value, resolve_(row.index, key_, stored));
    const Status added = value.size() <= kSeriesBytesMax
                             ? builder_.add_resolved(row.index, stored, value)
                             : builder_.add(row.index, SeriesKind::kPoints, stored);
    SWALE_RETURN_IF_ERROR(added);
  }
  return builder_.finish();
}

}  // namespace swale::imd
