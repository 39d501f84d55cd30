// RangeMap: disjoint ranges of a file's bytes, each with a value; neighbours that have one value are one
// range.
//
// Threads: one at a time. A call that throws std::bad_alloc has changed nothing that visit() shows.
// Invariants: (1) ranges do not overlap, and none is empty; (2) no two neighbours that touch have one value.
// Memory: a node of std::map a range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace swale::fs {

struct Span {
  uint64_t begin = 0;
  uint64_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

template <class Value>
class RangeMap {
 public:
  // The range takes the place of what was there.
  void put(const Span& span, const Value& value) {
    if (span.begin >= span.end) return;
    split(span.begin);
    split(span.end);
    const auto [at, fresh] = ranges_.try_emplace(span.begin, Range{span.end, value});
    if (!fresh) at->second = {span.end, value};
    ranges_.erase(std::next(at), ranges_.lower_bound(span.end));
    join(std::next(at));
    join(at);
  }
  void cut(const Span& span) {
    if (span.begin >= span.end) return;
    split(span.begin);
    split(span.end);
    ranges_.erase(ranges_.lower_bound(span.begin), ranges_.lower_bound(span.end));
  }
  void clear() { ranges_.clear(); }

  // visit(Span, value) of the parts that lie in the span, in order.
  template <class Visit>
  void visit(const Span& span, const Visit& visit) const {
    auto at = ranges_.upper_bound(span.begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > span.begin) --at;
    for (; at != ranges_.end() && at->first < span.end; ++at)
      visit(Span{std::max(at->first, span.begin), std::min(at->second.end, span.end)}, at->second.value);
  }
  bool empty() const { return ranges_.empty(); }
  size_t size() const { return ranges_.size(); }
  uint64_t end() const { return ranges_.empty() ? 0 : std::prev(ranges_.end())->second.end; }

 private:
  struct Range {
    uint64_t end;
    Value value;
  };
  using Ranges = std::map<uint64_t, Range>;

  // No range has this place inside it afterwards.
  void split(uint64_t place) {
    auto at = ranges_.lower_bound(place);
    if (at == ranges_.begin()) return;
    --at;
    if (at->second.end <= place) return;
    ranges_.emplace(place, at->second);
    at->second.end = place;
  }
  void join(typename Ranges::iterator at) {
    if (at == ranges_.end() || at == ranges_.begin()) return;
    const auto before = std::prev(at);
    if (before->second.end != at->first || !(before->second.value == at->second.value)) return;
    before->second.end = at->second.end;
    ranges_.erase(at);
  }

  Ranges ranges_;  // by their begins
};

}  // namespace swale::fs
