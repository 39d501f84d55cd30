#include "imd/format/series.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/copy.h"
#include "base/split_digest.h"

namespace swale::imd {
namespace {

// Adds to a tally of each of `count` epochs the digest of a value behind a key of eight bytes.
template <size_t kPairs, bool kRest>
void digest_values(const char* value, size_t value_bytes, size_t count, uint64_t key, RecordTally* tally) {
  for (size_t i = 0; i < count; ++i, value += value_bytes, ++tally)
    tally->digest += split_digest_of<kPairs, kRest>(key, value, value_bytes);
}

constexpr size_t kPairsMax = (run::kQuickKeyBytes + run::kQuickValueBytesMax) / 16;

template <size_t... kPairs>
constexpr auto digesters(std::index_sequence<kPairs...>) {
  return std::array{std::array{&digest_values<kPairs + 1, false>, &digest_values<kPairs + 1, true>}...};
}
constexpr auto kDigesters = digesters(std::make_index_sequence<kPairsMax>());

}  // namespace

bool split_resolved(Bytes bytes, Bytes* stored, Bytes* value) {
  Decoder in(bytes);
  *stored = in.sized();
  *value = in.rest();
  return in.ok();
}

char* put_usual_series_head(uint32_t first, size_t count, size_t value_bytes, char* out) {
  *out++ = static_cast<char>(kNextEpochs | kOneSize);
  out = put_varint(out, first);
  out = put_varint(out, count);
  return put_varint(out, series_size_code(value_bytes, SeriesKind::kWhole));
}

char* put_series(std::span<const SeriesValue> values, char* out) {
  const uint32_t size = series_size_code(values.front());
  uint32_t other_steps = 0;  // bits in which steps differ from 1, and sizes from the first one
  uint32_t other_sizes = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    other_steps |= (values[i].index - values[i - 1].index) ^ 1;
    other_sizes |= series_size_code(values[i]) ^ size;
  }
  *out++ = static_cast<char>((other_steps == 0 ? kNextEpochs : 0) | (other_sizes == 0 ? kOneSize : 0));
  out = put_varint(out, values.front().index);
  out = put_varint(out, values.size());
  for (size_t i = 1; i < values.size() && other_steps != 0; ++i)
    out = put_varint(out, values[i].index - values[i - 1].index);
  for (const SeriesValue& value : values.first(other_sizes == 0 ? 1 : values.size()))
    out = put_varint(out, series_size_code(value));
  for (const SeriesValue& value : values) {
    copy_bytes(out, value.bytes.data(), value.bytes.size());
    out += value.bytes.size();
  }
  return out;
}

// A value that fits into no series is cut; its last part says what it is.
Status SeriesBuilder::add(uint32_t index, SeriesKind kind, Bytes bytes) {
  for (;;) {
    const SeriesValue value{index, kind, bytes};
    const size_t taken = series_value_bytes_max(step_to(index), value);
    if (used_ + taken <= kSeriesBytesMax) {
      put(value);
      return {};
    }
    if (!values_.empty()) {
      SWALE_RETURN_IF_ERROR(finish());
      continue;
    }
    const size_t part = kSeriesBytesMax - used_ - varint_bytes(0) - kVarint32BytesMax;
    put({index, SeriesKind::kContinues, bytes.substr(0, part)});
    bytes.remove_prefix(part);
    SWALE_RETURN_IF_ERROR(finish());
  }
}

Status SeriesBuilder::add_resolved(uint32_t index, Bytes stored, Bytes value) {
  resolved_.clear();
  append_sized(&resolved_, stored);
  resolved_.append(value);
  return add(index, SeriesKind::kResolved, resolved_);
}

void SeriesBuilder::put(const SeriesValue& value) {
  if (bytes_.capacity() < kSeriesBytesMax) bytes_.reserve(kSeriesBytesMax);
  used_ += series_value_bytes_max(step_to(value.index), value);
  const size_t at = bytes_.size();
  bytes_.append(value.bytes);
  values_.push_back({value.index, value.kind, Bytes(bytes_).substr(at)});
}

Status SeriesBuilder::finish() {
  if (values_.empty()) return {};
  series_.resize(used_);
  series_.resize(static_cast<size_t>(put_series(values_, series_.data()) - series_.data()));
  assert(series_.size() <= kSeriesBytesMax);
  values_.clear();
  bytes_.clear();
  used_ = kSeriesHeadBytesMax;
  return emit_(series_);
}

inline void SeriesTally::count(uint32_t index, Bytes key, Bytes stored) {
  row_.assign(key);
  row_.append(stored);
  tallies_[index].add({1, row_.size(), record_digest(row_, key.size())});
}

// Of a value that is resolved, or one of the parts of a value.
bool SeriesTally::take_slowly(Bytes key, const SeriesValue& value) {
  Bytes bytes = value.bytes;
  bool right = true;
  if (!front_.empty()) {
    right = value.index == front_index_;
    front_.append(bytes);
    bytes = front_;
  }
  if (value.kind == SeriesKind::kContinues) {
    if (front_.empty()) front_.assign(bytes);
    front_key_.assign(key);
    front_index_ = value.index;
    return right;
  }
  Bytes resolved;
  if (value.kind == SeriesKind::kResolved) right = split_resolved(bytes, &bytes, &resolved) && right;
  count(value.index, key, bytes);
  front_.clear();
  return right;
}

void SeriesTally::Usual::count_into(std::vector<RecordTally>* tallies) const {
  for (uint32_t i = first; i < first + count; ++i)
    (*tallies)[i].add({taken, taken * (run::kQuickKeyBytes + value_bytes), 0});
}

std::vector<RecordTally> SeriesTally::tallies() const {
  std::vector<RecordTally> all = tallies_;
  usual_.count_into(&all);
  return all;
}

// Sets usual_ to what most series are: whole values of equal sizes, of epochs that follow each other. False:
// it is another one, or one whose head is too long to be kept.
bool SeriesTally::parse_usual(Bytes key, Bytes series) {
  const char* at = series.data();
  const char* const end = at + series.size();
  if (key.size() != run::kQuickKeyBytes || at == end || *at++ != (kNextEpochs | kOneSize)) return false;
  uint32_t head[3] = {};  // first, count, size
  for (uint32_t& number : head) {
    if ((at = get_varint32(at, end, &number)) == nullptr) return false;
  }
  const size_t count = head[1];
  const size_t value_bytes = head[2] >> 2;
  const size_t pairs = (run::kQuickKeyBytes + value_bytes) / 16;
  if ((head[2] & 3) != static_cast<uint32_t>(SeriesKind::kWhole) || count == 0 || pairs == 0 ||
      value_bytes > run::kQuickValueBytesMax || head[0] >= tallies_.size() ||
      count > tallies_.size() - head[0] || count * value_bytes != static_cast<size_t>(end - at)) {
    return false;
  }
  const auto head_bytes = static_cast<uint32_t>(at - series.data());
  if (head_bytes >= sizeof(usual_.head) || series.size() < sizeof(usual_.head)) return false;
  usual_.count_into(&tallies_);
  usual_ = {.series_bytes = series.size(),
            .head = get_u64(series.data()),
            .mask = (uint64_t{1} << 8 * head_bytes) - 1,
            .head_bytes = head_bytes,
            .first = head[0],
            .count = head[1],
            .value_bytes = static_cast<uint32_t>(value_bytes),
            .digest = kDigesters[pairs - 1][value_bytes % 16 != 8 ? 1 : 0]};
  return true;
}

bool SeriesTally::take_any(Bytes key, Bytes series) {
  if (!has_columns(series)) return take_rows(key, series);
  SeriesRows rows;
  const Bytes made = rows.of(series);
  return !made.empty() && take_rows(key, made);
}

bool SeriesTally::take_rows(Bytes key, Bytes series) {
  if (front_.empty() && (is_usual(key, series) || parse_usual(key, series))) {
    take_usual(key, series);
    return true;
  }
  bool right = front_.empty() || front_key_ == key;
  const auto epochs = static_cast<uint32_t>(tallies_.size());
  const bool known = walk_rows(series, epochs, [&](const SeriesValue& value) {
    if (value.kind <= SeriesKind::kPoints && front_.empty()) [[likely]] {
      count(value.index, key, value.bytes);
    } else {
      right = take_slowly(key, value) && right;
    }
  });
  return known && right;
}

}  // namespace swale::imd
