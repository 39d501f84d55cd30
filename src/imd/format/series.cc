#include "imd/format/series.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::imd {
namespace {

constexpr uint32_t kKindBits = 2;

uint32_t size_code(size_t bytes, SeriesKind kind) {
  return static_cast<uint32_t>(bytes << kKindBits) | static_cast<uint32_t>(kind);
}

}  // namespace

bool split_resolved(Bytes bytes, Bytes* stored, Bytes* value) {
  Decoder in(bytes);
  *stored = in.sized();
  *value = in.rest();
  return in.ok();
}

// A value that fits into no series is cut; its last part says what it is.
Status SeriesBuilder::add(uint32_t index, SeriesKind kind, Bytes bytes) {
  for (;;) {
    const size_t step_bytes = varint_bytes(step_from_last(index));
    if (used_ + step_bytes + varint_bytes(size_code(bytes.size(), kind)) + bytes.size() <= kSeriesBytesMax) {
      put(index, kind, bytes);
      return {};
    }
    if (!items_.empty()) {
      SWALE_RETURN_IF_ERROR(finish());
      continue;
    }
    const size_t part = kSeriesBytesMax - used_ - step_bytes - kVarint32BytesMax;
    put(index, SeriesKind::kContinues, bytes.substr(0, part));
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

void SeriesBuilder::put(uint32_t index, SeriesKind kind, Bytes bytes) {
  const uint32_t size = size_code(bytes.size(), kind);
  used_ += varint_bytes(step_from_last(index)) + varint_bytes(size) + bytes.size();
  items_.push_back({index, size});
  bytes_.append(bytes);
}

Status SeriesBuilder::finish() {
  if (items_.empty()) return {};
  bool next_epochs = true;
  bool one_size = true;
  for (size_t i = 1; i < items_.size(); ++i) {
    next_epochs = next_epochs && items_[i].index == items_[i - 1].index + 1;
    one_size = one_size && items_[i].size == items_[0].size;
  }
  series_.clear();
  series_.push_back(static_cast<char>((next_epochs ? kNextEpochs : 0) | (one_size ? kOneSize : 0)));
  append_varint(&series_, items_.front().index);
  append_varint(&series_, items_.size());
  for (size_t i = 1; i < items_.size() && !next_epochs; ++i)
    append_varint(&series_, items_[i].index - items_[i - 1].index);
  for (size_t i = 0; i < (one_size ? 1 : items_.size()); ++i) append_varint(&series_, items_[i].size);
  series_.append(bytes_);
  assert(series_.size() <= kSeriesBytesMax);
  items_.clear();
  bytes_.clear();
  used_ = kHeadBytesMax;
  return emit_(series_);
}

bool SeriesTally::take(Bytes key, Bytes series) {
  bool right = front_.empty() || front_key_ == key;
  const auto epochs = static_cast<uint32_t>(tallies_.size());
  const bool known = walk_series(series, epochs, [&](const SeriesValue& value) {
    Bytes bytes = value.bytes;
    if (!front_.empty()) {
      right = right && value.index == front_index_;
      front_.append(bytes);
      bytes = front_;
    }
    if (value.kind == SeriesKind::kContinues) {
      if (front_.empty()) front_.assign(bytes);
      front_key_.assign(key);
      front_index_ = value.index;
      return;
    }
    Bytes resolved;
    if (value.kind == SeriesKind::kResolved) right = right && split_resolved(bytes, &bytes, &resolved);
    row_.assign(key);
    row_.append(bytes);
    tallies_[value.index].add({1, row_.size(), record_digest(row_, key.size())});
    front_.clear();
  });
  return known && right;
}

}  // namespace swale::imd
