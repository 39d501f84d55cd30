#include "imd/optimize/series_maker.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "base/copy.h"
#include "run/record.h"

namespace swale::imd {
namespace {

constexpr size_t kRowsAhead = 24;  // prefetched
// A bucket has a few rows, so that sorting it by insertion is quick; and buckets are few enough for the
// caches.
constexpr uint64_t kRowsPerBucket = 2;
constexpr uint64_t kBucketsMax = uint64_t{1} << 16;
constexpr size_t kInsertionMax = 32;
constexpr size_t kUsualKeyBytes = 8;
// A value that fits into a series for certain.
constexpr size_t kStoredBytesMax = kSeriesBytesMax - kSeriesHeadBytesMax - 2 * kVarint32BytesMax;

bool less(const StripeRow& a, const StripeRow& b) { return a.hash < b.hash; }

// Stable, and quick where rows are nearly in order.
void sort_by_insertion(std::span<StripeRow> rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i - 1].hash <= rows[i].hash) [[likely]]
      continue;
    const StripeRow row = rows[i];
    size_t to = i;
    for (; to > 0 && rows[to - 1].hash > row.hash; --to) rows[to] = rows[to - 1];
    rows[to] = row;
  }
}

// Where a row that will be needed soon begins and where it ends. What stands after the last row may be any
// address: nothing is read from it.
inline void fetch_ahead(const StripeRow* row) {
  const StripeRow& ahead = row[kRowsAhead];
  const auto at = reinterpret_cast<uintptr_t>(ahead.at);
  __builtin_prefetch(reinterpret_cast<const void*>(at));
  __builtin_prefetch(reinterpret_cast<const void*>(at + ahead.row_bytes() - 1));
}

// Copies the values of rows with keys of the usual length side by side, and returns their end. Values of 16
// to 127 bytes have straight-line code, as in run/row_copy.h.
using GatherFn = char* (*)(std::span<const StripeRow> rows, size_t value_bytes, char* out);

template <size_t kPairs, bool kRest>
char* gather_of(std::span<const StripeRow> rows, size_t value_bytes, char* out) {
  for (const StripeRow& row : rows) {
    copy_pairs<kPairs, kRest>(out, row.at + kUsualKeyBytes, value_bytes);
    out += value_bytes;
  }
  return out;
}

char* gather_any(std::span<const StripeRow> rows, size_t value_bytes, char* out) {
  for (const StripeRow& row : rows) {
    copy_bytes(out, row.at + kUsualKeyBytes, value_bytes);
    out += value_bytes;
  }
  return out;
}

constexpr size_t kGatherPairsMax = 7;

template <size_t... kPairs>
constexpr auto gatherers(std::index_sequence<kPairs...>) {
  return std::array<std::array<GatherFn, 2>, sizeof...(kPairs)>{
      {{&gather_of<kPairs + 1, false>, &gather_of<kPairs + 1, true>}...}};
}

GatherFn gatherer_for(size_t value_bytes) {
  static constexpr auto kGatherers = gatherers(std::make_index_sequence<kGatherPairsMax>());
  const size_t pairs = value_bytes / 16;
  return pairs == 0 || pairs > kGatherPairsMax ? gather_any : kGatherers[pairs - 1][value_bytes % 16 != 0];
}

}  // namespace

SeriesMaker::SeriesMaker(uint32_t epochs, SeriesLayout layout, const ResolveFn& resolve,
                         std::shared_ptr<run::ChunkPool> pool)
    : layout_(layout), resolve_(resolve), pool_(std::move(pool)), tally_(epochs) {}

Status SeriesMaker::make(const Stripe& stripe, SeriesBatch* batch) {
  *batch = {};
  count(stripe);
  sort(stripe);
  batch->records = rows_;
  batch->read_bytes = stripe.read_bytes;
  for (size_t begin = 0; begin < rows_;) {
    bool usual = false;
    const std::span<StripeRow> rows = next_hash(begin, &usual);
    SWALE_RETURN_IF_ERROR(usual ? put_usual(rows, batch) : put_hash(rows, batch));
    begin += rows.size();
  }
  if (tally_.complete()) return {};
  return error(Code::kInternal, Scope::kOperation, "a value lacks its end; please report it");
}

// Hashes of all rows of the parts, and how many lie in each bucket.
void SeriesMaker::count(const Stripe& stripe) {
  const uint64_t buckets =
      std::clamp<uint64_t>(std::bit_ceil(stripe.rows_max / kRowsPerBucket), 2, kBucketsMax);
  const auto bits = [](uint64_t number) { return 64 - static_cast<uint32_t>(std::countl_zero(number)); };
  const Hash begin = stripe.first;  // all that the loops use is in registers
  const Hash length = stripe.last - begin;
  const uint32_t shift = shift_ = bits(length) - std::min(bits(length), bits(buckets - 1));
  bucket_ends_.assign((length >> shift) + 1, 0);
  if (hashes_.size() < stripe.rows_max) hashes_.resize(stripe.rows_max);
  uint32_t* const counts = bucket_ends_.data();
  Hash* out = hashes_.data();
  const auto take = [=, &out](Hash hash) {
    *out++ = hash;
    if (hash - begin <= length) ++counts[(hash - begin) >> shift];
  };
  for (const StripePart& part : stripe.parts) {
    const char* at = part.uniform;
    const char* const end = at + size_t{part.count} * part.row_bytes;
    if (part.rows != nullptr) {
      for (const StripeRow& row : std::span(part.rows, part.count)) take(row.hash);
    } else if (part.key_bytes == kUsualKeyBytes) {
      for (; at != end; at += part.row_bytes) take(hash_eight_bytes(at));
    } else {
      for (; at != end; at += part.row_bytes) take(hash_bytes({at, part.key_bytes}));
    }
  }
}

// The stripe's rows in the order of hashes; those of equal hashes stay in theirs.
void SeriesMaker::sort(const Stripe& stripe) {
  uint32_t begin = 0;
  uint32_t longest = 0;
  for (uint32_t& end : bucket_ends_) {
    longest = std::max(longest, end);
    begin += std::exchange(end, begin);
  }
  rows_ = begin;
  if (sorted_.size() < rows_ + kRowsAhead) sorted_.resize(rows_ + kRowsAhead);
  uint32_t* const next = bucket_ends_.data();
  StripeRow* const sorted = sorted_.data();
  const Hash* hash = hashes_.data();
  const Hash first = stripe.first;
  const Hash length = stripe.last - first;
  const uint32_t shift = shift_;
  const auto put = [=, &hash](const char* at, uint32_t index, uint32_t shape) {
    const Hash of_row = *hash++;
    if (of_row - first <= length) sorted[next[(of_row - first) >> shift]++] = {of_row, at, index, shape};
  };
  for (const StripePart& part : stripe.parts) {
    for (const StripeRow& row : std::span(part.rows, part.rows != nullptr ? part.count : 0))
      put(row.at, row.index, row.shape);
    if (part.rows != nullptr) continue;
    const uint32_t shape = StripeRow::shape_of(part.row_bytes, part.key_bytes, false);
    const size_t row_bytes = part.row_bytes;
    const uint32_t index = part.index;
    const char* const end = part.uniform + part.count * row_bytes;
    for (const char* at = part.uniform; at != end; at += row_bytes) put(at, index, shape);
  }
  if (longest > kInsertionMax) sort_long_buckets();
  sort_by_insertion(std::span(sorted_).first(rows_));  // none goes farther than its bucket
}

// Those of a hot key, or of keys that were made to collide.
void SeriesMaker::sort_long_buckets() {
  uint32_t begin = 0;
  for (const uint32_t end : bucket_ends_) {
    const std::span<StripeRow> rows = std::span(sorted_).subspan(begin, end - begin);
    if (rows.size() > kInsertionMax && !std::ranges::is_sorted(rows, less))
      std::stable_sort(rows.begin(), rows.end(), less);
    begin = end;
  }
}

// The rows with the hash of that at `begin`. `*usual`: they are of one key, of eight bytes, and whole values
// of equal sizes, of epochs that follow each other.
std::span<StripeRow> SeriesMaker::next_hash(size_t begin, bool* usual) {
  StripeRow* const rows = sorted_.data() + begin;
  const StripeRow* const end = sorted_.data() + rows_;
  const StripeRow first = *rows;
  const bool usual_key = first.key_bytes() == kUsualKeyBytes;
  const uint64_t key = usual_key ? get_u64(first.at) : 0;
  uint64_t others = usual_key ? 0 : 1;  // bits in which rows differ from the usual
  fetch_ahead(rows);
  const StripeRow* row = rows + 1;
  for (; row != end && row->hash == first.hash; ++row) {
    fetch_ahead(row);
    others |= (row->index - row[-1].index) ^ 1;
    others |= row->shape ^ first.shape;
    if (others == 0) others = get_u64(row->at) ^ key;
  }
  *usual = others == 0 && !first.large() && first.stored().size() <= kStoredBytesMax;
  return {rows, static_cast<size_t>(row - rows)};
}

// As few series as possible.
Status SeriesMaker::put_usual(std::span<const StripeRow> rows, SeriesBatch* batch) {
  const size_t value_bytes = rows.front().row_bytes() - kUsualKeyBytes;
  const SeriesValue value{0, SeriesKind::kWhole, rows.front().stored()};
  const size_t count_max = (kSeriesBytesMax - kSeriesHeadBytesMax) / series_value_bytes_max(1, value);
  const GatherFn gather = gatherer_for(value_bytes);
  while (!rows.empty()) {
    const std::span<const StripeRow> some = rows.first(std::min(rows.size(), count_max));
    rows = rows.subspan(some.size());
    const uint32_t first = some.front().index;
    if (usual_.first != first || usual_.count != some.size() || usual_.value_bytes != value_bytes)
      know_usual(first, some.size(), value_bytes);
    const size_t series_bytes = usual_.head_bytes + some.size() * value_bytes;
    // Whole words are copied, of which the key and the values take the ends' places.
    char* const record =
        batch->reserve(usual_.sizes_bytes + kUsualKeyBytes + series_bytes + sizeof(usual_.head), *pool_);
    std::memcpy(record, usual_.sizes.data(), usual_.sizes.size());
    char* const key = record + usual_.sizes_bytes;
    std::memcpy(key, some.front().at, kUsualKeyBytes);
    char* const series = key + kUsualKeyBytes;
    std::memcpy(series, usual_.head.data(), usual_.head.size());
    gather(some, value_bytes, series + usual_.head_bytes);
    SWALE_RETURN_IF_ERROR(finish({key, kUsualKeyBytes}, {series, series_bytes}, record, batch));
  }
  return {};
}

void SeriesMaker::know_usual(uint32_t first, size_t count, size_t value_bytes) {
  static_assert(sizeof(usual_.sizes) >= run::kRecordHeaderBytesMax &&
                sizeof(usual_.head) >= kSeriesHeadBytesMax + kVarint32BytesMax);
  usual_ = {.first = first, .count = count, .value_bytes = value_bytes};
  char* const head = usual_.head.data();
  usual_.head_bytes = static_cast<size_t>(put_usual_series_head(first, count, value_bytes, head) - head);
  char* const sizes = usual_.sizes.data();
  char* const end = put_varint(put_varint(sizes, kUsualKeyBytes), usual_.head_bytes + count * value_bytes);
  usual_.sizes_bytes = static_cast<size_t>(end - sizes);
}

// Any rows of one hash: nearly always of one key.
Status SeriesMaker::put_hash(std::span<StripeRow> rows, SeriesBatch* batch) {
  // Those of a cluster that is read come before those of logs.
  if (!std::ranges::is_sorted(rows, {}, &StripeRow::index))
    std::ranges::stable_sort(rows, {}, &StripeRow::index);
  const Bytes first = rows.front().key();
  const auto is_first = [&](const StripeRow& row) { return row.key() == first; };
  if (std::ranges::all_of(rows.subspan(1), is_first)) return put_key(rows, batch);
  std::ranges::stable_sort(rows, {}, &StripeRow::key);
  for (size_t from = 0; from < rows.size();) {
    size_t to = from;
    while (to < rows.size() && rows[to].key() == rows[from].key()) ++to;
    SWALE_RETURN_IF_ERROR(put_key(rows.subspan(from, to - from), batch));
    from = to;
  }
  return {};
}

// As few series as possible. A value that is resolved, or fits into none by itself, takes the long way.
Status SeriesMaker::put_key(std::span<const StripeRow> rows, SeriesBatch* batch) {
  const auto is_odd = [&](const StripeRow& row) {
    return (row.large() && resolve_) || row.stored().size() > kStoredBytesMax;
  };
  if (std::ranges::any_of(rows, is_odd)) return put_slowly(rows, batch);
  const Bytes key = rows.front().key();
  values_.clear();
  size_t most = kSeriesHeadBytesMax;
  for (const StripeRow& row : rows) {
    const SeriesValue value{row.index, row.large() ? SeriesKind::kPoints : SeriesKind::kWhole, row.stored()};
    const uint32_t step = values_.empty() ? 0 : row.index - values_.back().index;
    if (most + series_value_bytes_max(step, value) > kSeriesBytesMax) {
      SWALE_RETURN_IF_ERROR(put_values(key, most, batch));
      most = kSeriesHeadBytesMax;
    }
    most += series_value_bytes_max(values_.empty() ? 0 : step, value);
    values_.push_back(value);
  }
  return put_values(key, most, batch);
}

// Makes a series of values_, of `most` bytes at most.
Status SeriesMaker::put_values(Bytes key, size_t most, SeriesBatch* batch) {
  const Status put = put_record(key, most, batch, [&](char* series) { return put_series(values_, series); });
  values_.clear();
  return put;
}

// A resolved value that fits into no series by itself stays where it is.
Status SeriesMaker::put_slowly(std::span<const StripeRow> rows, SeriesBatch* batch) {
  const Bytes key = rows.front().key();
  SeriesBuilder builder([&](Bytes series) {
    return put_record(key, series.size(), batch, [&](char* out) {
      copy_bytes(out, series.data(), series.size());
      return out + series.size();
    });
  });
  for (const StripeRow& row : rows) {
    const Bytes stored = row.stored();
    const SeriesKind kind = row.large() ? SeriesKind::kPoints : SeriesKind::kWhole;
    if (!row.large() || !resolve_) {
      SWALE_RETURN_IF_ERROR(builder.add(row.index, kind, stored));
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(const std::string value, resolve_(row.index, key, stored));
    SWALE_RETURN_IF_ERROR(value.size() <= kSeriesBytesMax ? builder.add_resolved(row.index, stored, value)
                                                          : builder.add(row.index, kind, stored));
  }
  return builder.finish();
}

// A record of the key and the series that write(out) makes, of `most` bytes at most, and returns the end of.
template <class Write>
Status SeriesMaker::put_record(Bytes key, size_t most, SeriesBatch* batch, Write&& write) {
  char* const head = batch->reserve(run::kRecordHeaderBytesMax + key.size() + most, *pool_);
  const size_t key_size_bytes = varint_bytes(key.size());
  char* row = head + key_size_bytes + varint_bytes(most);
  const auto series_bytes = static_cast<size_t>(write(row + key.size()) - row) - key.size();
  if (varint_bytes(series_bytes) != varint_bytes(most)) [[unlikely]] {
    char* const shorter = head + key_size_bytes + varint_bytes(series_bytes);
    std::memmove(shorter + key.size(), row + key.size(), series_bytes);
    row = shorter;
  }
  put_varint(put_varint(head, key.size()), series_bytes);
  copy_bytes(row, key.data(), key.size());
  return finish({row, key.size()}, {row + key.size(), series_bytes}, head, batch);
}

// The record begins at `record` and ends with the series. What is in the batch is read back: what is counted
// is what will be written.
Status SeriesMaker::finish(MutableBytes key, MutableBytes series, char* record, SeriesBatch* batch) {
  if (layout_ == SeriesLayout::kColumns) make_columns(series);
  const auto record_bytes = static_cast<size_t>(series.data() + series.size() - record);
  batch->add({view(key), view(series), {record, record_bytes}});
  if (tally_.take(view(key), view(series))) return {};
  return error(Code::kInternal, Scope::kOperation, "a series cannot be read back; please report it");
}

}  // namespace swale::imd
