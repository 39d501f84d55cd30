#include "query/filter.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstring>

namespace swale::query {
namespace {

using Kind = Datum::Kind;

// The order keys of a type's numbers, from the least to the largest: `first` + i * `step` for 0 <= i <=
// `last`.
struct KeySpace {
  run::OrderKey first;
  run::OrderKey step;
  uint64_t last;
};

KeySpace keys_of(run::FieldType type) {
  constexpr uint64_t kInfinity8 = uint64_t{0x7ff} << 52;
  constexpr uint32_t kInfinity4 = uint32_t{0xff} << 23;
  constexpr uint64_t kFloatStep = uint64_t{1} << 32;
  const uint32_t bits = 8 * run::type_bytes(type);
  switch (run::type_name(type)[0]) {
    case 'f':
      if (bits == 32) {
        const run::OrderKey first = run::float_key(kInfinity4 | uint32_t{1} << 31);
        return {first, kFloatStep, (run::float_key(kInfinity4) - first) / kFloatStep};
      }
      return {run::double_key(kInfinity8 | uint64_t{1} << 63), 1,
              run::double_key(kInfinity8) - run::double_key(kInfinity8 | uint64_t{1} << 63)};
    case 'i':
      return {run::signed_key(bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1))), 1,
              UINT64_MAX >> (64 - bits)};
    default:
      return {0, 1, UINT64_MAX >> (64 - bits)};
  }
}

// The first i for which `is`, which is false and then true; last + 1 does not fit: `none` then.
template <class Is>
uint64_t first_of(uint64_t last, bool* none, Is&& is) {
  *none = !is(last);
  uint64_t low = 0;
  while (low < last) {
    const uint64_t middle = low + (last - low) / 2;
    if (is(middle)) {
      last = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The order keys of a type's stored numbers: as run::read_field has them. False: NaN.
template <class Stored, class Key>
struct Numbers {
  static bool read(const char* at, run::OrderKey* key) {
    Stored stored;
    std::memcpy(&stored, at, sizeof stored);
    return Key()(stored, key);
  }
};
struct OfDouble {
  bool operator()(uint64_t bits, run::OrderKey* key) const {
    *key = run::double_key(bits);
    return !run::is_nan_double(bits);
  }
};
struct OfFloat {
  bool operator()(uint32_t bits, run::OrderKey* key) const {
    *key = run::float_key(bits);
    return !run::is_nan_float(bits);
  }
};
struct OfSigned {
  bool operator()(int64_t number, run::OrderKey* key) const {
    *key = run::signed_key(number);
    return true;
  }
};
struct OfUnsigned {
  bool operator()(uint64_t number, run::OrderKey* key) const {
    *key = run::unsigned_key(number);
    return true;
  }
};

// Clears what does not pass. No branch for a number, so that a condition which every other record meets
// costs no more.
template <class Of>
void keep_between(run::OrderKey first, run::OrderKey last, bool others, const char* at, size_t stride,
                  uint64_t count, uint8_t* passes) {
  for (uint64_t i = 0; i < count; ++i, at += stride) {
    run::OrderKey key = 0;
    const bool number = Of::read(at, &key);
    const bool within = (key >= first) & (key <= last);
    passes[i] = static_cast<uint8_t>(passes[i] & number & (within != others));
  }
}

}  // namespace

Filter::Filter(Expression condition) : condition_(std::move(condition)) { add(condition_.root_); }

void Filter::add(uint32_t index) {
  const Expression::Node& node = condition_.nodes_[index];
  if (node.op == Expression::Op::kAnd) {
    add(node.left);
    add(node.right);
  } else if (!add_range(index)) {
    rest_.push_back(index);
  }
}

void Filter::choose_range(const Range& range, const char* values, size_t stride, uint64_t count,
                          uint8_t* passes) {
  const auto keep = [&]<class Of>() {
    keep_between<Of>(range.first, range.last, range.others, values + range.place.offset, stride, count,
                     passes);
  };
  switch (range.place.type) {
    case run::FieldType::kF4:
      return keep.template operator()<Numbers<uint32_t, OfFloat>>();
    case run::FieldType::kF8:
      return keep.template operator()<Numbers<uint64_t, OfDouble>>();
    case run::FieldType::kI1:
      return keep.template operator()<Numbers<int8_t, OfSigned>>();
    case run::FieldType::kI2:
      return keep.template operator()<Numbers<int16_t, OfSigned>>();
    case run::FieldType::kI4:
      return keep.template operator()<Numbers<int32_t, OfSigned>>();
    case run::FieldType::kI8:
      return keep.template operator()<Numbers<int64_t, OfSigned>>();
    case run::FieldType::kU1:
      return keep.template operator()<Numbers<uint8_t, OfUnsigned>>();
    case run::FieldType::kU2:
      return keep.template operator()<Numbers<uint16_t, OfUnsigned>>();
    case run::FieldType::kU4:
      return keep.template operator()<Numbers<uint32_t, OfUnsigned>>();
    case run::FieldType::kU8:
      return keep.template operator()<Numbers<uint64_t, OfUnsigned>>();
  }
}

void Filter::choose(const RecordView& of, const char* rows, uint32_t key_bytes, uint32_t value_bytes,
                    uint64_t count, uint8_t* passes) const {
  const size_t stride = size_t{key_bytes} + value_bytes;
  std::memset(passes, 1, count);
  for (const Range& range : ranges_) {
    if (range.place.end() > value_bytes) {  // all lack the field
      std::memset(passes, 0, count);
      return;
    }
    choose_range(range, rows + key_bytes, stride, count, passes);
  }
  if (rest_.empty()) return;
  RecordView record = of;
  for (uint64_t i = 0; i < count; ++i, rows += stride) {
    if (passes[i] == 0) continue;
    record.key = {rows, key_bytes};
    record.value = {rows + key_bytes, value_bytes};
    for (const uint32_t node : rest_) {
      passes[i] = condition_.evaluate(node, record).truth;
      if (passes[i] == 0) break;
    }
  }
}

bool Filter::is_constant(uint32_t index) const {
  const Expression::Node& node = condition_.nodes_[index];
  if (node.type != Expression::Type::kNumber) return false;
  switch (node.op) {
    case Expression::Op::kLiteral:
      return true;
    case Expression::Op::kNegate:
      return is_constant(node.left);
    default:
      return false;
  }
}

bool Filter::add_range(uint32_t index) {
  using Op = Expression::Op;
  const Expression::Node& node = condition_.nodes_[index];
  if (node.op < Op::kEqual || node.op > Op::kGreaterEqual) return false;
  const bool field_first = condition_.nodes_[node.left].op == Op::kField && is_constant(node.right);
  const bool field_last = condition_.nodes_[node.right].op == Op::kField && is_constant(node.left);
  if (!field_first && !field_last) return false;
  Op op = node.op;
  if (field_last) {  // 5 < x is x > 5
    op = op == Op::kLess           ? Op::kGreater
         : op == Op::kLessEqual    ? Op::kGreaterEqual
         : op == Op::kGreater      ? Op::kLess
         : op == Op::kGreaterEqual ? Op::kLessEqual
                                   : op;
  }
  const uint32_t field = field_first ? node.left : node.right;
  const Datum number = condition_.evaluate(field_first ? node.right : node.left, RecordView());
  ranges_.push_back(range_of(op, condition_.nodes_[field].place, number));
  return true;
}

// By binary search over the type's numbers with the expression's own comparison: so both agree to the last
// bit.
Filter::Range Filter::range_of(Expression::Op op, const run::FieldPlace& place, const Datum& number) {
  using Op = Expression::Op;
  Range range;
  range.place = place;
  if (number.kind == Kind::kReal && std::isnan(number.real)) return range;  // nothing compares with NaN
  const KeySpace keys = keys_of(place.type);
  const auto key_at = [&](uint64_t i) { return keys.first + i * keys.step; };
  const auto order = [&](uint64_t i) { return compare(field_datum(place.type, key_at(i)), number); };
  bool all_less = false;
  bool none_greater = false;
  const uint64_t not_less = first_of(keys.last, &all_less, [&](uint64_t i) { return order(i) >= 0; });
  const uint64_t greater = first_of(keys.last, &none_greater, [&](uint64_t i) { return order(i) > 0; });
  const auto set = [&](uint64_t first, uint64_t last) {
    range.first = key_at(first);
    range.last = key_at(last);
  };
  switch (op) {
    case Op::kEqual:
    case Op::kUnequal:
      if (!all_less && order(not_less) == 0) set(not_less, none_greater ? keys.last : greater - 1);
      range.others = op == Op::kUnequal;
      break;
    case Op::kLess:
      if (all_less) set(0, keys.last);
      if (!all_less && not_less != 0) set(0, not_less - 1);
      break;
    case Op::kLessEqual:
      if (none_greater) set(0, keys.last);
      if (!none_greater && greater != 0) set(0, greater - 1);
      break;
    case Op::kGreater:
      if (!none_greater) set(greater, keys.last);
      break;
    default:
      if (!all_less) set(not_less, keys.last);
      break;
  }
  return range;
}

}  // namespace swale::query
