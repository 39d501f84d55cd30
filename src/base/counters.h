// Counters: named numbers by which a part of Swale says what it has done and how it stands, merged over the
// ranks that have counted.
//
// A part has a table of rows (name, unit, help) next to its code, and fills Counters from it when somebody
// asks. All of them have one shape: a C handle (swale_stats), a JSON object, a form for messages.
//
//   json     :=
//            {"ranks":N,"stats":{NAME:{"unit":TEXT,"sum":N,"min":N,"min_rank":R,"max":N,"max_rank":R},...}}
//   message  := varint ranks | varint count | count x (sized name | varint sum, min, min_rank, max, max_rank)
//
// Names keep their meaning for ever. Threads: values. Limits: kCountersMax in a message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/metrics.h"
#include "base/status.h"

namespace swale {

struct CounterRow {
  std::string_view name;  // "append.wait"
  // "ns", "bytes", "ppm" (a share, in millionths), "ps" (per byte), "" for a count
  std::string_view unit = "";
  std::string_view help = "";
  bool is_mark = false;  // a high-water mark: its sum over ranks means nothing
};

struct MergedCount {
  uint64_t sum = 0;
  uint64_t min = 0;
  uint64_t max = 0;
  int32_t min_rank = 0;  // the lowest that had it
  int32_t max_rank = 0;

  void merge(const MergedCount& other);
  bool operator==(const MergedCount&) const = default;
};

inline constexpr size_t kCountersMax = 1024;

struct NamedCount {
  std::string name;
  std::string unit;
  std::string help;
  MergedCount value;
};

class Counters {
 public:
  // Of one rank, which counts; or of as many as the counters to come are merged over.
  static Counters of_rank(int32_t rank);
  static Counters of_ranks(uint32_t ranks);
  static Counters of(std::span<const Metric> metrics, std::span<const CounterRow> rows, int32_t rank);

  void add(const CounterRow& row, const MergedCount& value);
  void add(const CounterRow& row, uint64_t value) { add(row, {value, value, value, rank_, rank_}); }
  // Of other ranks; counters that only one side has are kept as they are.
  void merge(const Counters& other);

  uint32_t ranks() const { return ranks_; }
  const std::vector<NamedCount>& all() const { return all_; }
  const NamedCount* find(std::string_view name) const;  // nullptr: there is none
  uint64_t sum(std::string_view name) const;            // 0: there is none

  // The members of the JSON object above, into the object that is open.
  void write_members(JsonWriter* json) const;
  std::string json() const;

  void append_to(std::string* out) const;
  // Units and helps are those of `rows`; a name that is not there has neither.
  static Result<Counters> read(Bytes message, std::span<const CounterRow> rows);

 private:
  Counters() = default;

  uint32_t ranks_ = 1;
  int32_t rank_ = 0;
  std::vector<NamedCount> all_;
};

const CounterRow* row_named(std::span<const CounterRow> rows,
                            std::string_view name);  // nullptr: there is none

}  // namespace swale
