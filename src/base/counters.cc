#include "base/counters.h"

#include <algorithm>

#include "base/coding.h"

namespace swale {

void MergedCount::merge(const MergedCount& other) {
  sum += other.sum;
  if (other.min < min || (other.min == min && other.min_rank < min_rank)) {
    min = other.min;
    min_rank = other.min_rank;
  }
  if (other.max > max || (other.max == max && other.max_rank < max_rank)) {
    max = other.max;
    max_rank = other.max_rank;
  }
}

const CounterRow* row_named(std::span<const CounterRow> rows, std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const CounterRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

Counters Counters::of_rank(int32_t rank) {
  Counters out;
  out.rank_ = rank;
  return out;
}

Counters Counters::of_ranks(uint32_t ranks) {
  Counters out;
  out.ranks_ = ranks;
  return out;
}

Counters Counters::of(std::span<const Metric> metrics, std::span<const CounterRow> rows, int32_t rank) {
  Counters out = of_rank(rank);
  for (const Metric& metric : metrics) {
    const CounterRow* const row = row_named(rows, metric.name);
    out.add({metric.name, metric.unit, row == nullptr ? std::string_view() : row->help}, metric.value);
  }
  return out;
}

void Counters::add(const CounterRow& row, const MergedCount& value) {
  all_.push_back({std::string(row.name), std::string(row.unit), std::string(row.help), value});
}

void Counters::merge(const Counters& other) {
  ranks_ += other.ranks_;
  for (const NamedCount& theirs : other.all_) {
    const auto mine = std::find_if(all_.begin(), all_.end(),
                                   [&](const NamedCount& each) { return each.name == theirs.name; });
    if (mine == all_.end())
      all_.push_back(theirs);
    else
      mine->value.merge(theirs.value);
  }
}

const NamedCount* Counters::find(std::string_view name) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const NamedCount& each) { return each.name == name; });
  return found == all_.end() ? nullptr : &*found;
}

uint64_t Counters::sum(std::string_view name) const {
  const NamedCount* const found = find(name);
  return found == nullptr ? 0 : found->value.sum;
}

void Counters::write_members(JsonWriter* json) const {
  json->member("ranks", ranks_).name("stats").object();
  for (const NamedCount& each : all_) {
    json->name(each.name).object().member("unit", each.unit).member("sum", each.value.sum);
    json->member("min", each.value.min).member("min_rank", each.value.min_rank);
    json->member("max", each.value.max).member("max_rank", each.value.max_rank).end();
  }
  json->end();
}

std::string Counters::json() const {
  JsonWriter json;
  json.object();
  write_members(&json);
  json.end();
  return json.text();
}

void Counters::append_to(std::string* out) const {
  append_varint(out, ranks_);
  append_varint(out, all_.size());
  for (const NamedCount& each : all_) {
    append_sized(out, each.name);
    append_varint(out, each.value.sum);
    append_varint(out, each.value.min);
    append_varint(out, static_cast<uint32_t>(each.value.min_rank));
    append_varint(out, each.value.max);
    append_varint(out, static_cast<uint32_t>(each.value.max_rank));
  }
}

Result<Counters> Counters::read(Bytes message, std::span<const CounterRow> rows) {
  Decoder in(message);
  Counters out = of_ranks(in.varint32());
  const uint64_t count = in.varint64();
  if (count > kCountersMax) return corruption("{} counters; at most {} are known", count, kCountersMax);
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::string name(in.sized());
    MergedCount value;
    value.sum = in.varint64();
    value.min = in.varint64();
    value.min_rank = static_cast<int32_t>(in.varint32());
    value.max = in.varint64();
    value.max_rank = static_cast<int32_t>(in.varint32());
    const CounterRow* const row = row_named(rows, name);
    out.add({name, row == nullptr ? std::string_view() : row->unit,
             row == nullptr ? std::string_view() : row->help},
            value);
  }
  if (!in.ok() || in.remaining() != 0)
    return corruption("a message of counters is cut off or has {} bytes too many", in.remaining());
  return out;
}

}  // namespace swale
