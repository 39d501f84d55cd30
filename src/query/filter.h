// Filter: a condition that is asked of very many records. It says of each what the Expression says, sooner.
//
// The parts of "a && b && c" that compare a field with a number become ranges of order keys (run/schema.h):
// one load, one comparison of integers, as exact as the expression. They are asked first. The rest is
// evaluated as written.
//
// Threads: immutable once made.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "query/expression.h"
#include "run/schema.h"

namespace swale::query {

class Filter {
 public:
  // A condition (Expression::parse_condition).
  explicit Filter(Expression condition);

  bool holds(const RecordView& record) const {
    for (const Range& range : ranges_) {
      if (!range.holds(record.value)) return false;
    }
    for (const uint32_t node : rest_) {
      if (!condition_.evaluate(node, record).truth) return false;
    }
    return true;
  }

  // The same of `count` records that lie side by side, each a key and a value: passes[i] is 1 or 0. Asks one
  // range of all of them before the next one. `of` has their epoch, step and time.
  void choose(const RecordView& of, const char* rows, uint32_t key_bytes, uint32_t value_bytes,
              uint64_t count, uint8_t* passes) const;

  // How many parts are ranges.
  size_t ranges() const { return ranges_.size(); }

 private:
  // The numbers whose order keys are from `first` to `last`, or all others. No number: neither.
  struct Range {
    run::FieldPlace place;
    run::OrderKey first = 1;
    run::OrderKey last = 0;  // less than `first`: none
    bool others = false;

    bool holds(Bytes value) const {
      const run::FieldValue found = run::read_field(place, value);
      if (found.kind != run::FieldValue::Kind::kNumber) return false;
      return (found.key >= first && found.key <= last) != others;
    }
  };

  static void choose_range(const Range& range, const char* values, size_t stride, uint64_t count,
                           uint8_t* passes);
  void add(uint32_t node);
  bool add_range(uint32_t node);
  bool is_constant(uint32_t node) const;
  static Range range_of(Expression::Op op, const run::FieldPlace& place, const Datum& number);

  Expression condition_;
  std::vector<Range> ranges_;
  std::vector<uint32_t> rest_;  // nodes of the condition
};

}  // namespace swale::query
