#include "query/filter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::query::filter_test {
namespace {

constexpr char kFields[] = "a:f8;b:f4;c:i1;d:u8;e:i8;f:u2;g:i4";

run::Schema schema() { return *run::Schema::parse(kFields, ""); }

template <class T>
void append_bits(std::string* out, T number) {
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Numbers at the edges of all types, and near the literals below.
double edge(Rng& rng) {
  constexpr double kEdges[] = {0,
                               -0.0,
                               1,
                               -1,
                               0.5,
                               127,
                               128,
                               -128,
                               -129,
                               65535,
                               65536,
                               1e300,
                               1e39,
                               -1e39,
                               3.4e38,
                               4294967296.0,
                               2.5,
                               9007199254740993.0,
                               18446744073709551616.0,
                               -9223372036854775808.0};
  switch (rng.below(8)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return std::numeric_limits<double>::infinity();
    case 2:
      return -std::numeric_limits<double>::infinity();
    default:
      return kEdges[rng.below(std::size(kEdges))];
  }
}

uint64_t whole(Rng& rng) {
  constexpr uint64_t kEdges[] = {
      0, 1, 2, 127, 128, 255, 256, 65535, 65536, 9007199254740992, 9007199254740993};
  const uint64_t number = kEdges[rng.below(std::size(kEdges))];
  switch (rng.below(4)) {
    case 0:
      return ~number;
    case 1:
      return number ^ (uint64_t{1} << 63);
    case 2:
      return ~number ^ (uint64_t{1} << 63);
    default:
      return number;
  }
}

std::string random_value(Rng& rng) {
  std::string value;
  append_bits(&value, edge(rng));
  append_bits(&value, static_cast<float>(edge(rng)));
  append_bits(&value, static_cast<int8_t>(whole(rng)));
  append_bits(&value, whole(rng));
  append_bits(&value, whole(rng));
  append_bits(&value, static_cast<uint16_t>(whole(rng)));
  append_bits(&value, static_cast<int32_t>(whole(rng)));
  return value.substr(0, rng.below(4) == 0 ? rng.below(value.size() + 1) : value.size());
}

std::string random_comparison(Rng& rng) {
  constexpr const char* kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  constexpr const char* kNumbers[] = {"0",
                                      "-0.0",
                                      "1",
                                      "-1",
                                      "0.5",
                                      "-128",
                                      "-129",
                                      "127",
                                      "127.5",
                                      "65535",
                                      "-65536",
                                      "2.5",
                                      "1e39",
                                      "-1e39",
                                      "1e400 / 1e400",
                                      "9007199254740993",
                                      "9007199254740992.0",
                                      "18446744073709551615",
                                      "1e308",
                                      "-9223372036854775808",
                                      "0x7f",
                                      "(0.1)"};
  const std::string field(1, static_cast<char>('a' + rng.below(7)));
  const char* const op = kOperators[rng.below(std::size(kOperators))];
  const char* const number = kNumbers[rng.below(std::size(kNumbers))];
  return rng.below(3) == 0 ? fmt::format("{} {} {}", number, op, field)
                           : fmt::format("{} {} {}", field, op, number);
}

TEST(Filter, SaysWhatItsConditionSays) {
  Rng rng(7);
  std::vector<std::string> values;
  for (int i = 0; i < 500; ++i) values.push_back(random_value(rng));
  uint64_t answers[2] = {};
  uint64_t ranges = 0;
  for (int round = 0; round < 1'500; ++round) {
    std::string text = random_comparison(rng);
    for (uint64_t more = rng.below(3); more > 0; --more) text += " && " + random_comparison(rng);
    if (rng.below(8) == 0) text = "!(" + text + ") && a + b < 1e9";
    const auto expression = Expression::parse_condition(text, schema());
    if (!expression.ok()) continue;  // 1e400 is no number
    const Filter filter(*expression);
    ranges += filter.ranges();
    for (const std::string& value : values) {
      const RecordView record{0, 0, 0, "key", value};
      const bool holds = expression->holds(record);
      ++answers[holds ? 1 : 0];
      ASSERT_EQ(filter.holds(record), holds) << text;
    }
  }
  fmt::print("{} ranges; {} records passed, {} did not\n", ranges, answers[1], answers[0]);
  EXPECT_GT(ranges, 1'000U);
  EXPECT_GT(answers[1], 10'000U);
  EXPECT_GT(answers[0], 10'000U);
}

// Rows of a block have one length; shorter ones lack fields.
TEST(Filter, ChoosesAmongRowsAsAmongRecords) {
  Rng rng(11);
  constexpr uint64_t kRows = 85;
  uint64_t answers[2] = {};
  for (int round = 0; round < 600; ++round) {
    const size_t value_bytes =
        schema().value_bytes() - (rng.below(4) == 0 ? rng.below(schema().value_bytes()) : 0);
    std::string rows;
    for (uint64_t i = 0; i < kRows; ++i) {
      std::string value = random_value(rng);
      value.resize(value_bytes);
      rows += "key" + value;
    }
    std::string text = random_comparison(rng);
    for (uint64_t more = rng.below(3); more > 0; --more) text += " && " + random_comparison(rng);
    if (rng.below(3) == 0) text += " && !(" + random_comparison(rng) + " || step > 5)";
    const auto expression = Expression::parse_condition(text, schema());
    if (!expression.ok()) continue;
    const Filter filter(*expression);
    const RecordView of{1, 2, 3, {}, {}};
    std::vector<uint8_t> passes(kRows, 7);
    filter.choose(of, rows.data(), 3, static_cast<uint32_t>(value_bytes), kRows, passes.data());
    for (uint64_t i = 0; i < kRows; ++i) {
      const Bytes row = Bytes(rows).substr(i * (3 + value_bytes), 3 + value_bytes);
      const bool holds = filter.holds({1, 2, 3, row.substr(0, 3), row.substr(3)});
      ++answers[holds ? 1 : 0];
      ASSERT_EQ(passes[i], holds ? 1 : 0) << text << ", row " << i << " of values of " << value_bytes;
    }
  }
  EXPECT_GT(answers[1], 3'000U);
  EXPECT_GT(answers[0], 3'000U);
}

TEST(Filter, MakesRangesOfWhatComparesAFieldWithANumber) {
  const auto ranges = [](const char* text) {
    return Filter(Expression::parse_condition(text, schema()).value()).ranges();
  };
  EXPECT_EQ(ranges("a > 1 && -2 <= b && (c == 3 && d != 4)"), 4U);
  EXPECT_EQ(ranges("a > b"), 0U);
  EXPECT_EQ(ranges("a > 1 || b > 1"), 0U);
  EXPECT_EQ(ranges("a > 1 && (b > 1 || c > 1) && epoch > 2"), 1U);
}

}  // namespace
}  // namespace swale::query::filter_test
