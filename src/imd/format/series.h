// Series: the value of one record of a cluster: what one key has in the epochs of the cluster, by epoch and
// then as appended. A key has one series, or several one after the other if one would be too long.
//
// Format (docs/formats/clusters.md):
//   flags u8 | first varint | count varint | steps varint{count - 1}? | sizes varint{1 or count} | bytes
//   An epoch is its index in the cluster. first: of the first value; each step leads from one value to the
//   next and is absent (it is 1) with kNextEpochs. A size is bytes << 2 | kind; with kOneSize all values have
//   it. With kColumns the bytes of the values are columns (series_columns.h).
// Threads: free functions; a SeriesBuilder or a SeriesTally belongs to one thread at a time.
// Limits: kSeriesBytesMax a series.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/record_tally.h"
#include "imd/format/series_columns.h"
#include "run/record.h"

namespace swale::imd {

inline constexpr size_t kSeriesBytesMax = run::kValueBytesMax;

// DO NOT CHANGE: on disk.
enum class SeriesKind : uint8_t {
  kWhole = 0,     // the value
  kPoints = 1,    // as in the record of the epoch: the value lies in its job's value log or pages
  kResolved = 2,  // sized: what the record of the epoch has, a pointer; then the value that it points to
  kContinues =
      3,  // front part of what the next value has: that begins the key's next series, of the same epoch
};
enum SeriesFlag : uint8_t { kNextEpochs = 1, kOneSize = 2, kColumns = 4 };

struct SeriesValue {
  uint32_t index = 0;  // of the epoch, in the cluster
  SeriesKind kind = SeriesKind::kWhole;
  Bytes bytes;
};

// What bytes of the kind kResolved consist of. False: they are none.
bool split_resolved(Bytes bytes, Bytes* stored, Bytes* value);

// As walk_series, of a series of rows.
template <class Fn>
bool walk_rows(Bytes series, uint32_t epochs, Fn&& fn) {
  const char* at = series.data();
  const char* const end = at + series.size();
  if (at == end) return false;
  const auto flags = static_cast<uint8_t>(*at++);
  uint32_t index = 0;
  uint32_t count = 0;
  if ((flags & ~(kNextEpochs | kOneSize)) != 0) return false;
  if ((at = get_varint32(at, end, &index)) == nullptr || index >= epochs) return false;
  if ((at = get_varint32(at, end, &count)) == nullptr || count == 0) return false;
  const bool next_epochs = (flags & kNextEpochs) != 0;
  const bool one_size = (flags & kOneSize) != 0;
  const char* step_at = at;
  uint32_t step = 1;
  if (next_epochs && count > epochs - index) return false;
  for (uint32_t i = 1, last = index; i < count && !next_epochs; ++i, last += step) {
    if ((at = get_varint32(at, end, &step)) == nullptr || step >= epochs - last) return false;
  }
  const char* size_at = at;
  uint32_t size = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < (one_size ? 1 : count); ++i) {
    if ((at = get_varint32(at, end, &size)) == nullptr) return false;
    bytes += size >> 2;
  }
  if (one_size) bytes *= count;
  if (bytes != static_cast<uint64_t>(end - at)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0 && next_epochs) ++index;
    if (i > 0 && !next_epochs) step_at = get_varint32(step_at, end, &step), index += step;
    if (i == 0 || !one_size) size_at = get_varint32(size_at, end, &size);
    fn(SeriesValue{index, static_cast<SeriesKind>(size & 3), Bytes(at, size >> 2)});
    at += size >> 2;
  }
  return true;
}

inline bool has_columns(Bytes series) { return !series.empty() && (series.front() & kColumns) != 0; }

// A series of columns as rows.
struct SeriesRows {
  std::array<char, kSeriesBytesMax> bytes;

  Bytes of(Bytes series) { return make_rows(series, bytes); }
};

// Calls fn(const SeriesValue&) for each value, whose bytes are valid during the call. False, and no call, for
// bytes that are no series of a cluster of `epochs` epochs.
template <class Fn>
bool walk_series(Bytes series, uint32_t epochs, Fn&& fn) {
  if (!has_columns(series)) return walk_rows(series, epochs, fn);
  SeriesRows rows;
  return walk_rows(rows.of(series), epochs, fn);
}

// Most bytes that a series begins with, if it has no steps and one size.
inline constexpr size_t kSeriesHeadBytesMax = 1 + 2 * kVarint32BytesMax;
constexpr uint32_t series_size_code(size_t bytes, SeriesKind kind) {
  return static_cast<uint32_t>(bytes << 2) | static_cast<uint32_t>(kind);
}
inline uint32_t series_size_code(const SeriesValue& value) {
  return series_size_code(value.bytes.size(), value.kind);
}
// Most bytes that a value takes in a series, `step` epochs after the value before it.
inline size_t series_value_bytes_max(uint32_t step, const SeriesValue& value) {
  return varint_bytes(step) + varint_bytes(series_size_code(value)) + value.bytes.size();
}
// Writes the series of these values, of one key and in its order, and returns its end. Requires a value, and
// space for kSeriesHeadBytesMax and the most that each of them takes.
char* put_series(std::span<const SeriesValue> values, char* out);

// Writes what the series of `count` values begins with that are whole, of equal sizes and of as many epochs,
// one after the other; then come their bytes.
char* put_usual_series_head(uint32_t first, size_t count, size_t value_bytes, char* out);

// Makes the series of one key after the other. For any values; most keys have all of theirs in memory, and
// together they fit: put_series is quicker.
class SeriesBuilder {
 public:
  // Takes a finished series, valid during the call.
  using Emit = std::function<Status(Bytes series)>;
  explicit SeriesBuilder(Emit emit) : emit_(std::move(emit)) {}

  // The next value of the key, of the same epoch as the one before or of a later one.
  Status add(uint32_t index, SeriesKind kind, Bytes bytes);
  // With the pointer that `stored` ends with.
  Status add_resolved(uint32_t index, Bytes stored, Bytes value);
  // The key has no more values.
  Status finish();

 private:
  uint32_t step_to(uint32_t index) const { return values_.empty() ? 0 : index - values_.back().index; }
  void put(const SeriesValue& value);

  const Emit emit_;
  std::vector<SeriesValue> values_;  // their bytes are in bytes_, which never moves
  std::string bytes_;
  size_t used_ = kSeriesHeadBytesMax;  // of a series, if steps and sizes are written out
  std::string resolved_;
  std::string series_;
};

// Adds up what series hold, epoch by epoch, as the epoch log does.
class SeriesTally {
 public:
  explicit SeriesTally(uint32_t epochs) : tallies_(epochs) {}

  // The series of a key come one after the other. False: it is none, or does not continue what the one before
  // has begun.
  bool take(Bytes key, Bytes series) {
    if (!front_.empty() || !is_usual(key, series)) [[unlikely]]
      return take_any(key, series);
    take_usual(key, series);
    return true;
  }
  // No value waits for its continuation.
  bool complete() const { return front_.empty(); }
  std::vector<RecordTally> tallies() const;

 private:
  bool take_any(Bytes key, Bytes series);
  bool take_rows(Bytes key, Bytes series);
  void count(uint32_t index, Bytes key, Bytes stored);
  bool parse_usual(Bytes key, Bytes series);
  bool take_slowly(Bytes key, const SeriesValue& value);

  // What the last usual series began with, and so what it has. Nearly always the next one begins alike.
  struct Usual {
    size_t series_bytes = ~size_t{0};  // which none has: nothing is known
    uint64_t head = 0;                 // its first bytes, up to `mask`
    uint64_t mask = 0;
    uint32_t head_bytes = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t value_bytes = 0;
    void (*digest)(const char*, size_t, size_t, uint64_t, RecordTally*) = nullptr;
    uint64_t taken = 0;  // series that began alike; tallies_ has their digests only

    void count_into(std::vector<RecordTally>* tallies) const;
  };
  bool is_usual(Bytes key, Bytes series) const {
    return key.size() == run::kQuickKeyBytes && series.size() == usual_.series_bytes &&
           ((get_u64(series.data()) ^ usual_.head) & usual_.mask) == 0;
  }
  void take_usual(Bytes key, Bytes series) {
    ++usual_.taken;
    usual_.digest(series.data() + usual_.head_bytes, usual_.value_bytes, usual_.count, get_u64(key.data()),
                  &tallies_[usual_.first]);
  }

  std::vector<RecordTally> tallies_;
  Usual usual_;
  std::string row_;    // the key, then what the record of the epoch has
  std::string front_;  // of a value that continues, and whose it is
  std::string front_key_;
  uint32_t front_index_ = 0;
};

}  // namespace swale::imd
