#include "query/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::query::expression_test {
namespace {

using testing::HasSubstr;

// id u8, energy f4, v f8x2, small i2, x-y u1, key u1 (a field that is called like a word of ours)
run::Schema schema() { return *run::Schema::parse("id:u8;energy:f4;v:f8x2;small:i2;x-y:u1;key:u1", ""); }

void append_float(std::string* bytes, float number) {
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  append_fixed(bytes, bits);
}

void append_double(std::string* bytes, double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  append_fixed(bytes, bits);
}

std::string value_of(uint64_t id, float energy, double v0, double v1, int16_t small) {
  std::string value;
  append_fixed(&value, id);
  append_float(&value, energy);
  append_double(&value, v0);
  append_double(&value, v1);
  append_fixed(&value, static_cast<uint16_t>(small));
  return value + "\x07\x09";
}

bool holds(std::string_view text, Bytes value, Bytes key = "atom-17") {
  const auto expression = Expression::parse_condition(text, schema());
  EXPECT_TRUE(expression.ok()) << text << ": " << expression.status().to_string();
  return expression.ok() && expression->holds({3, 300, 1.5, key, value});
}

std::string refusal(std::string_view text) {
  const auto expression = Expression::parse_condition(text, schema());
  EXPECT_FALSE(expression.ok()) << text;
  EXPECT_EQ(expression.status().code(), Code::kInvalidArgument) << text;
  return std::string(expression.status().message());
}

TEST(Expression, ComparesFieldsAndWhatIsKnownOfTheRecord) {
  const std::string value = value_of(17, 2.5F, -1, 4, -300);
  for (const char* text : {"energy > 1.5 && id < 100",
                           "energy == 2.5",
                           "energy >= 2.5 and energy <= 2.5",
                           "id = 17",
                           "v[0] == -1",
                           "v[1] == 4.0",
                           "small == -300",
                           "small < 0",
                           "[x-y] == 7",
                           "[key] == 9",
                           "key == 9",
                           "epoch == 3",
                           "step == 300",
                           "time == 1.5",
                           "bytes == 32",
                           "not (id != 17)",
                           "!(id == 18)",
                           "id == 0x11",
                           "id != 18 or energy > 1e9",
                           "id < 1 || id > 16 && energy > 0",
                           "has(small)",
                           "2 < id",
                           ".5 < energy",
                           "abs(small) == 300",
                           "sqrt(v[1]) == 2",
                           "v[0]*v[0] + v[1]*v[1] == 17",
                           "-small == 300",
                           "id % 10 == 7",
                           "id / 2 == 8.5",
                           "(id + 3) * 2 == 40",
                           "id - 20 == -3",
                           "1 - 2 - 3 == -4",
                           "8 / 4 / 2 == 1",
                           "1 + 2 * 3 == 7"}) {
    EXPECT_TRUE(holds(text, value)) << text;
    EXPECT_FALSE(holds("!(" + std::string(text) + ")", value)) << text;
  }
}

// Only what is compared with the key is written as keys are.
TEST(Expression, ValuesAreComparedWithTextWhateverTheKeysAre) {
  for (const run::KeyType type :
       {run::KeyType::kU64, run::KeyType::kI64, run::KeyType::kText, run::KeyType::kBytes}) {
    run::Schema keyed = schema();
    keyed.key = type;
    const auto with_value = [&](const char* text, Bytes value) {
      const auto expression = Expression::parse_condition(text, keyed);
      EXPECT_TRUE(expression.ok()) << text << ": " << expression.status().to_string();
      return expression.ok() && expression->holds({0, 0, 0, "atom-17", value});
    };
    EXPECT_TRUE(with_value("value == 'hello'", "hello"));
    EXPECT_TRUE(with_value("'hello' == value", "hello"));
    EXPECT_TRUE(with_value("value == '13'", "13"));
    EXPECT_TRUE(with_value("value == '0x00ff'", Bytes("\0\xff", 2))) << "as values are printed";
    EXPECT_TRUE(with_value("value == ''", ""));
    EXPECT_FALSE(with_value("value == ''", "x"));
    EXPECT_TRUE(with_value("value ~ 'h*'", "hello"));
  }
}

TEST(Expression, SaysWhyTwoThingsCannotBeCompared) {
  run::Schema numbers;
  numbers.key = run::KeyType::kU64;
  const auto refused = [&](std::string_view text) {
    const auto expression = Expression::parse_condition(text, numbers);
    EXPECT_FALSE(expression.ok()) << text;
    return std::string(expression.status().message());
  };
  EXPECT_THAT(refused("key == '13'"), HasSubstr("keys are numbers here"));
  EXPECT_THAT(refused("key ~ '1*'"), HasSubstr("keys are numbers here"));
  EXPECT_THAT(refused("value == 13"), testing::Not(HasSubstr("keys are numbers")));
  EXPECT_THAT(refused("value == 13"), HasSubstr("value == '13'"));
  EXPECT_THAT(refused("step == '13'"), HasSubstr("without quotes"));
  EXPECT_THAT(refusal("1 < id < 3"), HasSubstr("1 < x && x < 3"));
  EXPECT_THAT(refusal("key == ''"), HasSubstr("number"));
}

TEST(Expression, KeysAreComparedAsBytesByPatternAndAsNumbers) {
  const run::Schema none;
  const std::string number("\x11\0\0\0\0\0\0\0", 8);
  const auto with_key = [&](const char* text, Bytes key) {
    const auto expression = Expression::parse_condition(text, none);
    EXPECT_TRUE(expression.ok()) << text << expression.status().to_string();
    return expression.ok() && expression->holds({0, 0, 0, key, "value"});
  };
  for (const char* text : {"key == \"atom-17\"", "key == 'atom-17'", "key ~ 'atom-*'", "key ~ \"*-1[0-9]\"",
                           "key > 'atom-16'", "value == 'value'", "key == '0x61746f6d2d3137'"}) {
    EXPECT_TRUE(with_key(text, "atom-17")) << text;
  }
  for (const char* text : {"key == 'u64:17'", "u64(key) == 17", "i64(key) < 18", "key < 'u64:18'"}) {
    EXPECT_TRUE(with_key(text, number)) << text;
    EXPECT_FALSE(with_key(text, "atom-17")) << text;
  }
  EXPECT_FALSE(with_key("u32(key) == 17", number)) << "a key of another length is no such number";
  EXPECT_TRUE(with_key("i32(key) == -1", "\xff\xff\xff\xff"));
  EXPECT_FALSE(with_key("key ~ '*'", number)) << "patterns are for text";
}

TEST(Expression, IntegersAreExact) {
  constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
  const std::string large = value_of(kLargest, 0, 0, 9007199254740993.0, 0);
  EXPECT_TRUE(holds("id == 18446744073709551615", large));
  EXPECT_FALSE(holds("id == 18446744073709551614", large));
  EXPECT_TRUE(holds("id + 1 > 18446744073709551615", large)) << "sums do not wrap";
  EXPECT_TRUE(holds("id * id > id", large));
  EXPECT_TRUE(holds("id < 18446744073709551616.0", large)) << "2^64 as a double, exactly one more";
  EXPECT_TRUE(holds("v[1] == 9007199254740992", large)) << "the double is rounded, the comparison is not";
  EXPECT_FALSE(holds("v[1] == 9007199254740993", large));
  EXPECT_TRUE(holds("id * id * id * id > 1e70", large)) << "beyond 128 bits in double";
  EXPECT_TRUE(holds("0 - id * 2 < 0 && abs(0 - id) == id", large));
  EXPECT_EQ(decimal(-(Int128{1} << 100)), "-1267650600228229401496703205376");
  EXPECT_EQ(decimal((Int128{1} << 126) - 1 + (Int128{1} << 126)), "170141183460469231731687303715884105727");
}

TEST(Expression, WhatIsNotThereOrNoNumberMakesComparisonsFalse) {
  const std::string brief("\x11\0\0\0\0\0\0\0", 8);
  for (const char* text : {"energy > 0", "energy <= 0", "energy == energy", "energy != 0", "energy + 1 != 0",
                           "has(energy)", "abs(energy) >= 0"}) {
    EXPECT_FALSE(holds(text, brief)) << text;
  }
  EXPECT_TRUE(holds("id == 17 && !has(energy)", brief));
  const std::string nan = value_of(1, std::nanf(""), 0, 0, 0);
  for (const char* text :
       {"energy > 0", "energy <= 0", "energy == energy", "energy != 0", "v[0] / 0 == 1", "id % 0 == 0"}) {
    EXPECT_FALSE(holds(text, nan)) << text;
  }
  EXPECT_TRUE(holds("has(energy) && !(energy == energy)", nan));
  EXPECT_TRUE(holds("id / 0 > 1e308", nan));
}

TEST(Expression, RefusesNonsenseAndNamesTheColumn) {
  for (const auto& [text, part] : {std::pair{"", "found the end"},
                                   std::pair{"energy", "expected a condition"},
                                   std::pair{"weight > 1", "no field"},
                                   std::pair{"energy >", "found the end"},
                                   std::pair{"energy > 1 2", "column 12"},
                                   std::pair{"(energy > 1", "expected )"},
                                   std::pair{"energy > 'x'", "cannot be compared"},
                                   std::pair{"v > 1", "v[0..1]"},
                                   std::pair{"v[2] > 1", "v[0..1]"},
                                   std::pair{"energy > 1 && id", "condition"},
                                   std::pair{"!energy", "condition"},
                                   std::pair{"1 < energy < 2", "expected an operator"},
                                   std::pair{"(1 < 2) == (2 < 3)", "&&"},
                                   std::pair{"sin(energy) > 0", "no function sin"},
                                   std::pair{"u64(id) > 0", "asked of key"},
                                   std::pair{"has(1) ", "asked of a field"},
                                   std::pair{"value == 'open", "not closed"},
                                   std::pair{"[x-y > 1", "not closed"},
                                   std::pair{"id ~ '*'", "key"},
                                   std::pair{"value == 'u64:x'", "u64:x"},
                                   std::pair{"id == 2nd", "brackets"},
                                   std::pair{"id == 99999999999999999999x", "letter"},
                                   std::pair{"- > 1", "column 3"},
                                   std::pair{"&", "expected"},
                                   std::pair{"value ~ id", "quotes"}}) {
    EXPECT_THAT(refusal(text), HasSubstr(part)) << text;
  }
  EXPECT_THAT(refusal(std::string(100, '(')), HasSubstr("nested"));
  EXPECT_THAT(refusal(std::string(100, '!') + "1"), HasSubstr("nested"));
  EXPECT_THAT(refusal(std::string(100, '-') + "1"), HasSubstr("nested"));
  std::string long_sum = "1";
  for (int i = 0; i < 2'000; ++i) long_sum += "+1";
  EXPECT_THAT(refusal(long_sum + " > 0"), HasSubstr("too long"));
  EXPECT_LT(refusal(long_sum + " > 0").size(), 300u);  // with what is near the place alone
  EXPECT_THAT(refusal(std::string(20'000, ' ')), HasSubstr("at most"));
  std::string nested = "id";
  for (int i = 0; i < 60; ++i) nested = "abs(" + nested + ")";
  EXPECT_TRUE(holds(nested + " == 17", value_of(17, 0, 0, 0, 0))) << "and the work does not double with each";
}

TEST(Expression, AnyTextIsParsedOrRefused) {
  constexpr std::string_view kParts[] = {"energy", "id", "v[1]", "key",  "'a'", "1",    "2.5",  "(",
                                         ")",      "&&", "||",   "!",    "<",   "==",   "~",    "+",
                                         "-",      "*",  "%",    "[",    "]",   "abs(", "u64(", " ",
                                         "\"",     "0x", "or",   "\xff", "/",   ".",    "1e999"};
  Rng rng(7);
  const std::string value = value_of(17, 2.5F, 1, 2, 3);
  size_t parsed = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    for (uint64_t i = 1 + rng.below(9); i > 0; --i) text += kParts[rng.below(std::size(kParts))];
    const auto expression = Expression::parse(text, schema());
    if (!expression.ok()) continue;
    ++parsed;
    static_cast<void>(expression->evaluate({1, 2, 3, "key", Bytes(value).substr(0, rng.below(33))}));
  }
  EXPECT_GT(parsed, 1'000u);
  std::printf("%zu of 200000 random texts were expressions\n", parsed);
}

}  // namespace
}  // namespace swale::query::expression_test
