// What users give to `swale scan --where` and `--fields`. Input: a line of fields, a line with the
// expression, a line that is the key; the rest is the value of the record that it is asked of.
//
// Whatever parses must give, for every record, what its type promises; the same in brackets, and again; and a
// condition the opposite behind "!". A Filter says the same as its condition.
#include <cstring>
#include <optional>

#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "query/expression.h"
#include "query/filter.h"

namespace swale::expression_fuzz {
namespace {

using query::Datum;
using query::Expression;

bool same(const Datum& a, const Datum& b) {
  // Bit by bit, for a NaN equals nothing; of two NaN the sign may differ.
  const bool both_nan = a.real != a.real && b.real != b.real;
  return a.kind == b.kind && a.truth == b.truth && a.integer == b.integer && a.bytes == b.bytes &&
         (both_nan || std::memcmp(&a.real, &b.real, sizeof a.real) == 0);
}

void ask(const Expression& expression, const std::optional<Expression>& bracketed,
         const std::optional<Expression>& opposite, bool is_condition, const query::RecordView& record) {
  const Datum answer = expression.evaluate(record);
  fuzz::require((answer.kind == Datum::Kind::kTruth) == is_condition);
  fuzz::require(same(answer, expression.evaluate(record)));
  if (bracketed) fuzz::require(same(answer, bracketed->evaluate(record)));
  if (is_condition) fuzz::require(expression.holds(record) == answer.truth);
  if (opposite) fuzz::require(opposite->holds(record) != answer.truth);
}

std::optional<Expression> parsed(const std::string& text, const run::Schema& schema) {
  auto expression = Expression::parse(text, schema);
  if (!expression.ok()) return std::nullopt;
  return *std::move(expression);
}

}  // namespace

SWALE_FUZZ_TARGET(expression_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  const std::string fields = fuzz::take_line(&input);
  const std::string text = fuzz::take_line(&input);
  const std::string key = fuzz::take_line(&input);
  const auto schema = run::Schema::parse(fields, "");
  if (!schema.ok()) return 0;
  const auto expression = Expression::parse(text, *schema);
  if (!expression.ok()) {
    fuzz::require(expression.status().code() == Code::kInvalidArgument);
    fuzz::require(!Expression::parse_condition(text, *schema).ok());
    return 0;
  }
  fuzz::require(expression->text() == text);
  const bool is_condition = Expression::parse_condition(text, *schema).ok();
  if (const run::FieldPlace* place = expression->field()) fuzz::require(!place->name.empty());
  // Not so if that is too long, or too deep.
  const auto bracketed = parsed("(" + text + ")", *schema);
  std::optional<query::Filter> filter;
  if (is_condition) filter.emplace(*expression);
  const auto opposite = is_condition ? parsed("!(" + text + ")", *schema) : std::nullopt;
  for (const Bytes value : {input, input.substr(0, input.size() / 2), Bytes()}) {
    for (const query::RecordView& record :
         {query::RecordView{7, -300, 1.5, key, value}, query::RecordView{0, 0, -1e308, "", value}}) {
      ask(*expression, bracketed, opposite, is_condition, record);
      if (filter) fuzz::require(filter->holds(record) == expression->holds(record));
    }
  }
  return 0;
}

}  // namespace swale::expression_fuzz
