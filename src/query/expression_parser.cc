#include "query/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "query/key_text.h"

namespace swale::query {
namespace {

constexpr size_t kTextBytesMax = 16 * 1024;
constexpr size_t kShownBytes = 100;  // in a message, before and after the place

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Status ExpressionParser::problem(size_t at, std::string_view what) const {
  // Of a long text, what is near the place: a program may have made it.
  const size_t from = at > kShownBytes ? at - kShownBytes : 0;
  const std::string_view shown = std::string_view(text_).substr(from, 2 * kShownBytes);
  return invalid_argument("\"{}{}{}\": column {}: {}", from > 0 ? "..." : "", shown,
                          from + shown.size() < text_.size() ? "..." : "", at + 1, what);
}

Result<Expression> ExpressionParser::parse() {
  if (text_.size() > kTextBytesMax) {
    return invalid_argument("an expression of {} bytes: at most {} are allowed", text_.size(), kTextBytesMax);
  }
  SWALE_ASSIGN_OR_RETURN(expression_.root_, any());
  skip_blanks();
  constexpr std::string_view kComparisons = "<>=!~";
  if (at_ != text_.size() && kComparisons.find(text_[at_]) != std::string_view::npos)
    return problem(at_, "expected an operator or the end; two comparisons are joined by &&: 1 < x && x < 3");
  if (at_ != text_.size()) return problem(at_, "expected an operator or the end");
  expression_.text_ = text_;
  return std::move(expression_);
}

void ExpressionParser::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
}

bool ExpressionParser::take(std::string_view symbol) {
  skip_blanks();
  if (!text_.substr(at_).starts_with(symbol)) return false;
  at_ += symbol.size();
  return true;
}

bool ExpressionParser::take_word(std::string_view word) {
  skip_blanks();
  const std::string_view rest = text_.substr(at_);
  if (!rest.starts_with(word)) return false;
  if (rest.size() > word.size() && (is_letter(rest[word.size()]) || is_digit(rest[word.size()])))
    return false;
  at_ += word.size();
  return true;
}

std::optional<ExpressionParser::Op> ExpressionParser::take_operator(
    std::initializer_list<Operator> operators) {
  for (const Operator& each : operators) {
    if (take(each.text)) return each.op;
  }
  return std::nullopt;
}

std::string_view ExpressionParser::take_name() {
  const size_t start = at_;
  while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
  return text_.substr(start, at_ - start);
}

std::string_view ExpressionParser::take_subscript() {
  const size_t start = at_;
  if (at_ == text_.size() || text_[at_] != '[') return {};
  size_t end = at_ + 1;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  if (end == text_.size() || text_[end] != ']') return {};
  at_ = end + 1;
  return text_.substr(start, at_ - start);
}

ExpressionParser::Index ExpressionParser::add(Node node) {
  if (expression_.nodes_.size() == Expression::kNodesMax) {
    return problem(at_, fmt::format("too long: more than {} parts", Expression::kNodesMax));
  }
  expression_.nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(expression_.nodes_.size() - 1);
}

Status ExpressionParser::expect(uint32_t index, Type type, size_t at) const {
  if (expression_.nodes_[index].type == type) return {};
  return problem(at, type == Type::kTruth    ? "expected a condition here"
                     : type == Type::kNumber ? "expected numbers here"
                                             : "expected key or value here");
}

bool ExpressionParser::is_number_key(uint32_t index) const {
  const Node& node = expression_.nodes_[index];
  return node.op == Op::kKey && node.type == Type::kNumber;
}

Status ExpressionParser::expect_comparable(uint32_t left, uint32_t right, size_t at) const {
  const Type type = expression_.nodes_[left].type;
  const Type other = expression_.nodes_[right].type;
  if (type == Type::kTruth || other == Type::kTruth)
    return problem(at, "conditions cannot be compared; use && and ||");
  if (type == other) return {};
  const auto has = [&](Op op) {
    return expression_.nodes_[left].op == op || expression_.nodes_[right].op == op;
  };
  if (is_number_key(left) || is_number_key(right))
    return problem(at, "keys are numbers here, and stand without quotes: key == 13");
  if (has(Op::kValue)) return problem(at, "a value and a number cannot be compared: write value == '13'");
  if (has(Op::kKey)) return problem(at, "a key and a number cannot be compared: write u64(key), or quotes");
  return problem(at, "a number and text cannot be compared: numbers stand without quotes");
}

// A literal that is compared with the key is written as keys are; one that is compared with the value as
// values are printed.
Status ExpressionParser::decode_literal(uint32_t index, uint32_t other, size_t at) {
  Node& literal = expression_.nodes_[index];
  if (literal.op != Op::kLiteral || literal.type != Type::kBytes) return {};
  const bool of_value = expression_.nodes_[other].op == Op::kValue;
  if (of_value && literal.bytes.empty()) return {};
  Result<std::string> bytes = parse_key(literal.bytes, of_value ? std::nullopt : schema_.key);
  if (!bytes.ok()) return problem(at, bytes.status().message());
  literal.bytes = std::move(*bytes);
  return {};
}

ExpressionParser::Index ExpressionParser::combine(Op op, uint32_t left, uint32_t right, size_t at) {
  Node node;
  node.op = op;
  node.left = left;
  node.right = right;
  if (op == Op::kAnd || op == Op::kOr || op == Op::kNot) {
    SWALE_RETURN_IF_ERROR(expect(left, Type::kTruth, at));
    SWALE_RETURN_IF_ERROR(expect(right, Type::kTruth, at));
    node.type = Type::kTruth;
  } else if (op >= Op::kEqual && op <= Op::kGreaterEqual) {
    SWALE_RETURN_IF_ERROR(expect_comparable(left, right, at));
    SWALE_RETURN_IF_ERROR(decode_literal(left, right, at));
    SWALE_RETURN_IF_ERROR(decode_literal(right, left, at));
    node.type = Type::kTruth;
  } else {
    SWALE_RETURN_IF_ERROR(expect(left, Type::kNumber, at));
    SWALE_RETURN_IF_ERROR(expect(right, Type::kNumber, at));
  }
  return add(std::move(node));
}

ExpressionParser::Index ExpressionParser::any() {
  if (++depth_ > Expression::kDepthMax) return problem(at_, "nested too deeply");
  SWALE_ASSIGN_OR_RETURN(uint32_t left, conjunction());
  while (take("||") || take_word("or")) {
    const size_t at = at_;
    SWALE_ASSIGN_OR_RETURN(const uint32_t right, conjunction());
    SWALE_ASSIGN_OR_RETURN(left, combine(Op::kOr, left, right, at));
  }
  --depth_;
  return left;
}

ExpressionParser::Index ExpressionParser::conjunction() {
  SWALE_ASSIGN_OR_RETURN(uint32_t left, negation());
  while (take("&&") || take_word("and")) {
    const size_t at = at_;
    SWALE_ASSIGN_OR_RETURN(const uint32_t right, negation());
    SWALE_ASSIGN_OR_RETURN(left, combine(Op::kAnd, left, right, at));
  }
  return left;
}

ExpressionParser::Index ExpressionParser::negation() {
  skip_blanks();
  const bool unequal = text_.substr(at_).starts_with("!=");
  if (unequal || (!take("!") && !take_word("not"))) return comparison();
  if (++depth_ > Expression::kDepthMax) return problem(at_, "nested too deeply");
  const size_t at = at_;
  SWALE_ASSIGN_OR_RETURN(const uint32_t operand, negation());
  --depth_;
  return combine(Op::kNot, operand, operand, at);
}

ExpressionParser::Index ExpressionParser::comparison() {
  SWALE_ASSIGN_OR_RETURN(const uint32_t left, sum());
  skip_blanks();
  const size_t at = at_;
  if (take("~")) {
    if (is_number_key(left))
      return problem(at, "keys are numbers here, and have no patterns: key >= 10 && key < 20");
    SWALE_RETURN_IF_ERROR(expect(left, Type::kBytes, at));
    skip_blanks();
    SWALE_ASSIGN_OR_RETURN(const uint32_t pattern, string());
    Node node;
    node.op = Op::kMatches;
    node.type = Type::kTruth;
    node.left = left;
    node.bytes = expression_.nodes_[pattern].bytes;
    return add(std::move(node));
  }
  const auto op = take_operator({{"==", Op::kEqual},
                                 {"!=", Op::kUnequal},
                                 {"<=", Op::kLessEqual},
                                 {">=", Op::kGreaterEqual},
                                 {"<", Op::kLess},
                                 {">", Op::kGreater},
                                 {"=", Op::kEqual}});
  if (!op) return left;
  SWALE_ASSIGN_OR_RETURN(const uint32_t right, sum());
  return combine(*op, left, right, at);
}

ExpressionParser::Index ExpressionParser::sum() {
  SWALE_ASSIGN_OR_RETURN(uint32_t left, product());
  for (;;) {
    skip_blanks();
    const size_t at = at_;
    const auto op = take_operator({{"+", Op::kAdd}, {"-", Op::kSubtract}});
    if (!op) return left;
    SWALE_ASSIGN_OR_RETURN(const uint32_t right, product());
    SWALE_ASSIGN_OR_RETURN(left, combine(*op, left, right, at));
  }
}

ExpressionParser::Index ExpressionParser::product() {
  SWALE_ASSIGN_OR_RETURN(uint32_t left, sign());
  for (;;) {
    skip_blanks();
    const size_t at = at_;
    const auto op = take_operator({{"*", Op::kMultiply}, {"/", Op::kDivide}, {"%", Op::kRemainder}});
    if (!op) return left;
    SWALE_ASSIGN_OR_RETURN(const uint32_t right, sign());
    SWALE_ASSIGN_OR_RETURN(left, combine(*op, left, right, at));
  }
}

ExpressionParser::Index ExpressionParser::sign() {
  if (!take("-")) return primary();
  if (++depth_ > Expression::kDepthMax) return problem(at_, "nested too deeply");
  const size_t at = at_;
  SWALE_ASSIGN_OR_RETURN(const uint32_t operand, sign());
  --depth_;
  return combine(Op::kNegate, operand, operand, at);
}

ExpressionParser::Index ExpressionParser::primary() {
  skip_blanks();
  if (at_ == text_.size())
    return problem(at_, "expected a field, a number or a key in quotes, found the end");
  const char c = text_[at_];
  const bool fraction = c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]);
  if (is_digit(c) || fraction) return number();
  if (c == '"' || c == '\'') return string();
  if (c == '[') return bracketed();
  if (is_letter(c)) return named();
  if (!take("(")) return problem(at_, "expected a field, a number or a key in quotes");
  SWALE_ASSIGN_OR_RETURN(const uint32_t inner, any());
  if (!take(")")) return problem(at_, "expected )");
  return inner;
}

// An integer of at most 64 bits, also in hex, or a double.
ExpressionParser::Index ExpressionParser::number() {
  Node node;
  const char* const begin = text_.data() + at_;
  const char* const end = text_.data() + text_.size();
  const bool hex = text_.substr(at_).starts_with("0x");
  uint64_t whole = 0;
  const auto integer = std::from_chars(begin + (hex ? 2 : 0), end, whole, hex ? 16 : 10);
  double real = 0;
  const auto fraction = std::from_chars(begin, end, real);
  const char* after = integer.ptr;
  if (integer.ec == std::errc() && (hex || fraction.ptr <= integer.ptr)) {
    node.literal.kind = Datum::Kind::kInteger;
    node.literal.integer = whole;
  } else if (!hex && fraction.ec == std::errc()) {
    node.literal.kind = Datum::Kind::kReal;
    node.literal.real = real;
    after = fraction.ptr;
  } else {
    return problem(at_, "not a number that can be held");
  }
  if (after < end && (is_letter(*after) || is_digit(*after) || *after == '.')) {
    return problem(at_, "a number followed by a letter; a field of such a name stands in brackets: [2nd]");
  }
  at_ += static_cast<size_t>(after - begin);
  return add(std::move(node));
}

ExpressionParser::Index ExpressionParser::string() {
  if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\''))
    return problem(at_, "expected text in quotes");
  const size_t end = text_.find(text_[at_], at_ + 1);
  if (end == std::string_view::npos) return problem(at_, "the quotes are not closed");
  Node node;
  node.type = Type::kBytes;
  node.bytes = text_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  return add(std::move(node));
}

ExpressionParser::Index ExpressionParser::bracketed() {
  const size_t at = at_;
  const size_t end = text_.find(']', at_);
  if (end == std::string_view::npos) return problem(at_, "the bracket is not closed");
  std::string name(text_.substr(at_ + 1, end - at_ - 1));
  at_ = end + 1;
  name += take_subscript();
  return field(name, at);
}

ExpressionParser::Index ExpressionParser::field(const std::string& name, size_t at) {
  Result<run::FieldPlace> place = schema_.find(name);
  if (!place.ok()) return problem(at, place.status().message());
  Node node;
  node.op = Op::kField;
  node.place = std::move(*place);
  return add(std::move(node));
}

ExpressionParser::Index ExpressionParser::named() {
  const size_t at = at_;
  std::string name(take_name());
  if (take("(")) return function(name, at);
  name += take_subscript();
  const auto same = [&](const run::Field& each) { return each.name == name; };
  if (std::any_of(schema_.fields.begin(), schema_.fields.end(), same)) return field(name, at);
  for (const auto& [builtin, op, type] :
       {std::tuple{"epoch", Op::kEpoch, Type::kNumber}, std::tuple{"step", Op::kStep, Type::kNumber},
        std::tuple{"time", Op::kTime, Type::kNumber}, std::tuple{"bytes", Op::kLength, Type::kNumber},
        std::tuple{"key", Op::kKey, Type::kBytes}, std::tuple{"value", Op::kValue, Type::kBytes}}) {
    if (name != builtin) continue;
    Node node;
    node.op = op;
    node.type = type;
    if (op == Op::kKey && (schema_.key == run::KeyType::kU64 || schema_.key == run::KeyType::kI64)) {
      node.type = Type::kNumber;
      node.place.type = schema_.key == run::KeyType::kU64 ? run::FieldType::kU8 : run::FieldType::kI8;
    }
    return add(std::move(node));
  }
  return field(name, at);
}

ExpressionParser::Index ExpressionParser::function(std::string_view name, size_t at) {
  SWALE_ASSIGN_OR_RETURN(const uint32_t operand, any());
  if (!take(")")) return problem(at_, "expected )");
  if (name == "abs") return combine(Op::kAbs, operand, operand, at);
  if (name == "sqrt") return combine(Op::kSqrt, operand, operand, at);
  Node node;
  if (name == "has") {
    if (expression_.nodes_[operand].op != Op::kField) return problem(at, "has() is asked of a field");
    node.op = Op::kHas;
    node.type = Type::kTruth;
    node.place = expression_.nodes_[operand].place;
    return add(std::move(node));
  }
  for (const auto& [known, type] :
       {std::pair{"u64", run::FieldType::kU8}, std::pair{"u32", run::FieldType::kU4},
        std::pair{"i64", run::FieldType::kI8}, std::pair{"i32", run::FieldType::kI4}}) {
    if (name != known) continue;
    if (expression_.nodes_[operand].op != Op::kKey)
      return problem(at, fmt::format("{}() is asked of key", name));
    node.op = Op::kKeyNumber;
    node.place.type = type;
    return add(std::move(node));
  }
  return problem(at, fmt::format("no function {}; there are u64, u32, i64, i32, abs, sqrt and has", name));
}

}  // namespace swale::query
