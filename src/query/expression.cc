#include "query/expression.h"

#include <fnmatch.h>

#include <cmath>
#include <compare>
#include <optional>

#include "base/coding.h"
#include "imd/format/manifest.h"
#include "query/expression_parser.h"

namespace swale::query {
namespace {

using Kind = Datum::Kind;

Datum integer(Int128 number) {
  Datum datum;
  datum.kind = Kind::kInteger;
  datum.integer = number;
  return datum;
}

Datum real(double number) {
  Datum datum;
  datum.kind = Kind::kReal;
  datum.real = number;
  return datum;
}

Datum bytes(Bytes view) {
  Datum datum;
  datum.kind = Kind::kBytes;
  datum.bytes = view;
  return datum;
}

Datum truth(bool is) {
  Datum datum;
  datum.kind = Kind::kTruth;
  datum.truth = is;
  return datum;
}

bool is_signed(run::FieldType type) {
  return type == run::FieldType::kI1 || type == run::FieldType::kI2 || type == run::FieldType::kI4 ||
         type == run::FieldType::kI8;
}

bool is_float(run::FieldType type) { return type == run::FieldType::kF4 || type == run::FieldType::kF8; }

Datum read_datum(const run::FieldPlace& place, Bytes value) {
  const run::FieldValue found = run::read_field(place, value);
  if (found.kind == run::FieldValue::Kind::kAbsent) return {};
  if (found.kind == run::FieldValue::Kind::kNan) return real(std::nan(""));
  return field_datum(place.type, found.key);
}

double as_double(const Datum& datum) {
  return datum.kind == Kind::kInteger ? static_cast<double>(datum.integer) : datum.real;
}

// Compares exactly, although neither double nor integer can represent all numbers of the other type.
std::partial_ordering compare_mixed(Int128 whole, double number) {
  constexpr double kTwoTo127 = 170141183460469231731687303715884105728.0;
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (number >= kTwoTo127) return std::partial_ordering::less;
  if (number < -kTwoTo127) return std::partial_ordering::greater;
  const double floor = std::floor(number);
  const auto below = static_cast<Int128>(floor);
  if (whole != below) return whole < below ? std::partial_ordering::less : std::partial_ordering::greater;
  return floor < number ? std::partial_ordering::less : std::partial_ordering::equivalent;
}

std::partial_ordering reversed(std::partial_ordering order) { return 0 <=> order; }

// None: the result does not fit.
std::optional<Int128> sum_of(Int128 a, Int128 b) {
  Int128 result;
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}
std::optional<Int128> difference_of(Int128 a, Int128 b) {
  Int128 result;
  return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}
std::optional<Int128> product_of(Int128 a, Int128 b) {
  Int128 result;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}
std::optional<Int128> remainder_of(Int128 a, Int128 b) {
  if (b == 0) return std::nullopt;
  return b == -1 ? Int128{0} : a % b;
}

Datum key_number(run::FieldType type, Bytes key) {
  run::FieldPlace place;
  place.type = type;
  return key.size() == run::type_bytes(type) ? read_datum(place, key) : Datum();
}

bool matches(const std::string& pattern, Bytes key) {
  if (key.find('\0') != Bytes::npos) return false;
  return ::fnmatch(pattern.c_str(), std::string(key).c_str(), 0) == 0;
}

}  // namespace

Datum field_datum(run::FieldType type, run::OrderKey key) {
  if (is_float(type)) return real(run::number_of(type, key));
  if (!is_signed(type)) return integer(key);
  return integer(static_cast<int64_t>(key ^ (uint64_t{1} << 63)));
}

std::partial_ordering compare(const Datum& a, const Datum& b) {
  if (a.kind == Kind::kBytes) {
    const int order = a.bytes.compare(b.bytes);
    return order < 0   ? std::partial_ordering::less
           : order > 0 ? std::partial_ordering::greater
                       : std::partial_ordering::equivalent;
  }
  if (a.kind == Kind::kInteger && b.kind == Kind::kInteger) {
    return a.integer < b.integer   ? std::partial_ordering::less
           : a.integer > b.integer ? std::partial_ordering::greater
                                   : std::partial_ordering::equivalent;
  }
  if (a.kind == Kind::kInteger) return compare_mixed(a.integer, b.real);
  if (b.kind == Kind::kInteger) return reversed(compare_mixed(b.integer, a.real));
  return a.real <=> b.real;
}

std::string decimal(Int128 number) {
  if (number == 0) return "0";
  std::string digits;
  const bool negative = number < 0;
  for (; number != 0; number /= 10) {
    const int digit = static_cast<int>(number % 10);
    digits.insert(digits.begin(), static_cast<char>('0' + (negative ? -digit : digit)));
  }
  return negative ? "-" + digits : digits;
}

Result<Expression> Expression::parse(std::string_view text, const run::Schema& schema) {
  return ExpressionParser(text, schema).parse();
}

Result<Expression> Expression::parse_condition(std::string_view text, const run::Schema& schema) {
  SWALE_ASSIGN_OR_RETURN(Expression expression, parse(text, schema));
  if (expression.nodes_[expression.root_].type == Type::kTruth) return expression;
  return invalid_argument("\"{}\": expected a condition, as energy > 1.5", text);
}

const run::FieldPlace* Expression::field() const {
  const Node& node = nodes_[root_];
  return node.op == Op::kField ? &node.place : nullptr;
}

std::string_view Expression::bytes_name() const {
  const Op op = nodes_[root_].op;
  return op == Op::kKey ? "key" : op == Op::kValue ? "value" : "";
}

std::string_view Expression::epoch_name() const {
  const Op op = nodes_[root_].op;
  return op == Op::kEpoch ? "epoch" : op == Op::kStep ? "step" : op == Op::kTime ? "time" : "";
}

Datum Expression::evaluate(uint32_t index, const RecordView& record) const {
  const Node& node = nodes_[index];
  switch (node.op) {
    case Op::kLiteral:
      return node.type == Type::kBytes ? bytes(node.bytes) : node.literal;
    case Op::kField:
      return read_datum(node.place, record.value);
    case Op::kHas:
      return truth(node.place.end() <= record.value.size());
    case Op::kEpoch:
      return integer(record.epoch);
    case Op::kStep:
      return record.step == imd::kStepUnknown ? Datum() : integer(record.step);
    case Op::kTime:
      return real(record.time);
    case Op::kKey:
      return node.type == Type::kNumber ? key_number(node.place.type, record.key) : bytes(record.key);
    case Op::kValue:
      return bytes(record.value);
    case Op::kLength:
      return integer(static_cast<Int128>(record.value.size()));
    case Op::kKeyNumber:
      return key_number(node.place.type, record.key);
    case Op::kMatches:
      return truth(matches(node.bytes, evaluate(node.left, record).bytes));
    case Op::kNot:
      return truth(!evaluate(node.left, record).truth);
    case Op::kAnd:
      return truth(evaluate(node.left, record).truth && evaluate(node.right, record).truth);
    case Op::kOr:
      return truth(evaluate(node.left, record).truth || evaluate(node.right, record).truth);
    default:
      return binary(node, record);
  }
}

// Operations on numbers, and comparisons. Unary ones get their operand twice.
Datum Expression::binary(const Node& node, const RecordView& record) const {
  const Datum a = evaluate(node.left, record);
  const Datum b = node.right == node.left ? a : evaluate(node.right, record);
  const bool absent = a.kind == Kind::kAbsent || b.kind == Kind::kAbsent;
  const bool whole = a.kind == Kind::kInteger && b.kind == Kind::kInteger;
  std::optional<Int128> exact;
  switch (node.op) {
    case Op::kEqual:
      return truth(!absent && compare(a, b) == 0);
    case Op::kUnequal: {
      const auto order = absent ? std::partial_ordering::unordered : compare(a, b);
      return truth(order < 0 || order > 0);
    }
    case Op::kLess:
      return truth(!absent && compare(a, b) < 0);
    case Op::kLessEqual:
      return truth(!absent && compare(a, b) <= 0);
    case Op::kGreater:
      return truth(!absent && compare(a, b) > 0);
    case Op::kGreaterEqual:
      return truth(!absent && compare(a, b) >= 0);
    default:
      break;
  }
  if (absent) return {};
  switch (node.op) {
    case Op::kAdd:
      if (whole) exact = sum_of(a.integer, b.integer);
      return exact ? integer(*exact) : real(as_double(a) + as_double(b));
    case Op::kSubtract:
      if (whole) exact = difference_of(a.integer, b.integer);
      return exact ? integer(*exact) : real(as_double(a) - as_double(b));
    case Op::kMultiply:
      if (whole) exact = product_of(a.integer, b.integer);
      return exact ? integer(*exact) : real(as_double(a) * as_double(b));
    case Op::kRemainder:
      if (whole) exact = remainder_of(a.integer, b.integer);
      return exact ? integer(*exact) : real(std::fmod(as_double(a), as_double(b)));
    case Op::kDivide:
      return real(as_double(a) / as_double(b));
    case Op::kAbs:
      if (whole) exact = a.integer < 0 ? difference_of(0, a.integer) : a.integer;
      return exact ? integer(*exact) : real(std::fabs(as_double(a)));
    case Op::kNegate:
      if (whole) exact = difference_of(0, a.integer);
      return exact ? integer(*exact) : real(-as_double(a));
    case Op::kSqrt:
      return real(std::sqrt(as_double(a)));
    default:
      return {};
  }
}

}  // namespace swale::query
