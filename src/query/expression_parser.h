// ExpressionParser: parses text to an Expression's nodes, by recursive descent. expression.h has the grammar.
// Threads: one. Errors: the first one, with its column.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "query/expression.h"

namespace swale::query {

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const run::Schema& schema) : text_(text), schema_(schema) {}

  Result<Expression> parse();

 private:
  using Op = Expression::Op;
  using Type = Expression::Type;
  using Node = Expression::Node;
  using Index = Result<uint32_t>;

  struct Operator {
    std::string_view text;
    Op op;
  };

  Index any();  // or
  Index conjunction();
  Index negation();
  Index comparison();
  Index sum();
  Index product();
  Index sign();
  Index primary();
  Index number();
  Index string();
  Index bracketed();  // [field]
  Index named();
  Index function(std::string_view name, size_t at);
  Index field(const std::string& name, size_t at);

  void skip_blanks();
  bool take(std::string_view symbol);
  bool take_word(std::string_view word);
  std::optional<Op> take_operator(std::initializer_list<Operator> operators);
  std::string_view take_name();
  // "[3]" after a name; "" if there is none.
  std::string_view take_subscript();

  Index add(Node node);
  Index combine(Op op, uint32_t left, uint32_t right, size_t at);
  Status expect(uint32_t index, Type type, size_t at) const;
  Status expect_comparable(uint32_t left, uint32_t right, size_t at) const;
  // Whether the node is the key of a directory whose keys are numbers.
  bool is_number_key(uint32_t index) const;
  // Makes bytes of text in quotes that is compared with `other`.
  Status decode_literal(uint32_t index, uint32_t other, size_t at);
  Status problem(size_t at, std::string_view what) const;

  const std::string_view text_;
  const run::Schema& schema_;
  size_t at_ = 0;
  int depth_ = 0;
  Expression expression_;
};

}  // namespace swale::query
