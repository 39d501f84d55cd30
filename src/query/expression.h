// Expression: a condition on a record (`swale scan --where`) or a value computed from it (`--fields`).
//
//   or      = and { ("||" | "or") and }              and   = not { ("&&" | "and") not }
//   not     = ("!" | "not") not | compare            compare = sum [ ("==" "!=" "<" "<=" ">" ">=" "~") sum ]
//   sum     = product { ("+" | "-") product }        product = sign { ("*" | "/" | "%") sign }
//   sign    = "-" sign | number | string | name [ "[" index "]" ] | "[" field "]" | function "(" or ")" | "("
//           or ")"
//
// Names are fields of the schema, or else epoch, step, time, key, value and bytes (the value's length);
// [any-name] is always a field. A string in ' or " that is compared with key is a key as `swale get` takes it
// ("u64:17"); one that is compared with value is text, or bytes as values are printed ("0x00ff"). key ~
// "atom-*" compares with a shell pattern. If the directory's keys are numbers (imd.key=u64 or i64), key is a
// number: key == 13; a key of another length is a missing number, and so is the step of an epoch that `swale
// repair` put there. Functions: u64 u32 i64 i32 (of a key of that length), abs, sqrt, has (whether the field
// exists).
//
// Integers are exact (128 bits), also in comparisons with floats. +, - and * change to double only on
// overflow, / always does. A missing field (the value is too short) makes a comparison false, as NaN does.
//
// No library in Debian fits: muParser, the only one of its kind there, has only doubles, which cannot hold
// 64-bit ids.
// Threads: immutable once parsed. Errors: kInvalidArgument that names the column.
// Limits: kNodesMax parts; nesting kDepthMax.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "run/schema.h"

namespace swale::query {

__extension__ typedef __int128 Int128;

struct RecordView {
  uint32_t epoch = 0;
  int64_t step = 0;
  double time = 0;
  Bytes key;
  Bytes value;
};

struct Datum {
  enum class Kind : uint8_t { kAbsent, kInteger, kReal, kBytes, kTruth };
  Kind kind = Kind::kAbsent;
  bool truth = false;
  Int128 integer = 0;
  double real = 0;
  Bytes bytes;
};

std::string decimal(Int128 number);

// The number that an order key stands for.
Datum field_datum(run::FieldType type, run::OrderKey key);
// Exactly, whatever kinds of numbers they are; two of bytes by their bytes. Unordered if one is NaN.
std::partial_ordering compare(const Datum& a, const Datum& b);

class Expression {
 public:
  static constexpr size_t kNodesMax = 1024;
  static constexpr int kDepthMax = 64;

  static Result<Expression> parse(std::string_view text, const run::Schema& schema);
  // As parse, but kInvalidArgument unless the result is true or false.
  static Result<Expression> parse_condition(std::string_view text, const run::Schema& schema);

  Datum evaluate(const RecordView& record) const { return evaluate(root_, record); }
  bool holds(const RecordView& record) const { return evaluate(record).truth; }

  const std::string& text() const { return text_; }
  const run::FieldPlace* field() const;
  // "epoch", "step" or "time", if the expression is only that.
  std::string_view epoch_name() const;
  // "key" or "value", if the expression is only that.
  std::string_view bytes_name() const;

 private:
  friend class ExpressionParser;
  friend class Filter;

  enum class Op : uint8_t {
    kLiteral,
    kField,
    kHas,
    kEpoch,
    kStep,
    kTime,
    kKey,
    kValue,
    kLength,
    kKeyNumber,
    kAbs,
    kSqrt,
    kNegate,
    kNot,
    kAnd,
    kOr,
    kEqual,
    kUnequal,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kMatches,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder
  };
  enum class Type : uint8_t { kNumber, kBytes, kTruth };

  struct Node {
    Op op = Op::kLiteral;
    Type type = Type::kNumber;
    uint32_t left = 0;
    uint32_t right = 0;
    Datum literal;
    std::string bytes;      // kLiteral of bytes, kMatches
    run::FieldPlace place;  // kField, kHas; kKeyNumber, and kKey if keys are numbers: only the type
  };

  Datum evaluate(uint32_t index, const RecordView& record) const;
  Datum binary(const Node& node, const RecordView& record) const;

  std::string text_;
  std::vector<Node> nodes_;
  uint32_t root_ = 0;
};

}  // namespace swale::query
