#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_writer.h"
#include "base/rng.h"

namespace swale::json_test {
namespace {

using ::testing::HasSubstr;
using Peer = nlohmann::json;

const std::string kText = R"({"a":1,
"list":[
{"x":1,"y":[10,20]},
{"x":2,"y":[30,"forty"],"z":{"deep":null}}
],
"a\nb":{"c":true},
"last":"end"})";

uint64_t offset_of(const std::string& part) { return kText.find(part); }

JsonValue element(JsonValue array, size_t index) {
  auto at = array.begin();
  while (index-- > 0) ++at;
  return *at;
}

TEST(Json, ValuesAreFoundByNameAndInOrder) {
  const auto json = JsonTree::parse(kText);
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  const JsonValue root = json->root();
  EXPECT_EQ(root.size(), 4u);
  EXPECT_EQ(root.find("a").unsigned_number(), 1u);
  EXPECT_EQ(root.find("last").string(), "end");
  EXPECT_EQ(root.find("a\nb").find("c").boolean(), true);
  const JsonValue second = element(root.find("list"), 1);
  EXPECT_EQ(second.find("x").integer(), 2);
  EXPECT_TRUE(element(second.find("y"), 1).equals("forty"));
  EXPECT_TRUE(second.find("z").find("deep").exists());
  std::vector<std::string> names;
  for (const JsonValue member : root) names.push_back(member.name());
  EXPECT_THAT(names, testing::ElementsAre("a", "list", "a\nb", "last"));
}

TEST(Json, WhatIsNotThereAnswersNoToEverything) {
  const auto json = JsonTree::parse(kText);
  for (const JsonValue none : {JsonValue(), json->root().find("none"), json->root().find("a").find("x")}) {
    EXPECT_FALSE(none.exists() || none.is_object() || none.is_array());
    EXPECT_FALSE(none.unsigned_number() || none.integer() || none.number() || none.boolean() ||
                 none.string());
    EXPECT_FALSE(none.equals(""));
    EXPECT_EQ(none.size(), 0u);
    EXPECT_TRUE(none.begin() == none.end());
  }
  EXPECT_EQ(json->root().find("last").unsigned_number(), std::nullopt);
  EXPECT_EQ(json->root().find("a").string(), std::nullopt);
}

TEST(Json, OfTwoMembersOfOneNameTheLastCounts) {
  EXPECT_EQ(JsonTree::parse(R"({"a":1,"b":2,"\u0061":3})")->root().find("a").unsigned_number(), 3u);
}

TEST(Json, APlaceIsThatOfTheMemberOnItsLine) {
  const auto json = JsonTree::parse(kText);
  const JsonValue root = json->root();
  const JsonValue second = element(root.find("list"), 1);
  struct Case {
    JsonValue value;
    std::string begins_with;
    uint64_t line;
  };
  for (const Case& c :
       {Case{root, "{\"a\"", 1}, Case{root.find("list"), "\"list\"", 2}, Case{second, "{\"x\":2", 4},
        Case{second.find("x"), "\"x\":2", 4}, Case{element(second.find("y"), 1), "\"forty\"", 4},
        Case{root.find("a\nb").find("c"), "\"c\"", 6}, Case{root.find("last"), "\"last\"", 7}}) {
    EXPECT_EQ(c.value.offset(), offset_of(c.begins_with)) << c.begins_with;
    EXPECT_EQ(json_place(kText, c.value.offset()),
              "line " + std::to_string(c.line) + ", offset " + std::to_string(offset_of(c.begins_with)));
  }
}

TEST(Json, AMistakeIsReportedWhereTheTextStopsBeingJson) {
  const auto message = [](std::string_view text) {
    return std::string(JsonTree::parse(text).status().message());
  };
  EXPECT_EQ(message("{\"a\":1,\n\"b\":?}"), "line 2, offset 12: expected a value");
  EXPECT_THAT(message(""), HasSubstr("line 1, offset 0"));
  EXPECT_THAT(message("[1] 2"), HasSubstr("offset 4: expected the end"));
  EXPECT_THAT(message("{\"a\" 1}"), HasSubstr("expected a colon"));
  EXPECT_THAT(message("{1:2}"), HasSubstr("name of a member"));
  EXPECT_THAT(message("[1 2]"), HasSubstr("expected a comma"));
  for (size_t bytes = 0; bytes < kText.size(); ++bytes)
    EXPECT_NE(message(kText.substr(0, bytes)), "") << bytes;
}

TEST(Json, IsTakenToADepthOf32) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(JsonTree::parse(nested(kJsonDepthMax)).ok());
  EXPECT_THAT(std::string(JsonTree::parse(nested(kJsonDepthMax + 1)).status().message()),
              HasSubstr("offset 32: nested"));
  EXPECT_FALSE(JsonTree::parse("{\"a\":" + nested(kJsonDepthMax) + "}").ok());
  EXPECT_FALSE(JsonTree::parse(std::string(10'000'000, '[')).ok());
  // One after the other, and what stands in strings, is not nested.
  std::string flat = "[";
  for (int i = 0; i < 1'000; ++i) flat += "[{}],";
  EXPECT_TRUE(JsonTree::parse(flat + "0]").ok());
  EXPECT_TRUE(JsonTree::parse("[\"" + nested(99) + "\",\"\\\"" + std::string(99, '{') + "\",\"\\\\\"]").ok());
}

TEST(Json, NumbersHaveTheTypesThatTheyFit) {
  const auto root = [](std::string_view text) { return JsonTree::parse(text); };
  EXPECT_EQ(root("18446744073709551615")->root().unsigned_number(), UINT64_MAX);
  EXPECT_EQ(root("18446744073709551616")->root().unsigned_number(), std::nullopt);
  EXPECT_EQ(root("18446744073709551616")->root().number(), 18446744073709551616.0);
  EXPECT_EQ(root("-9223372036854775808")->root().integer(), INT64_MIN);
  EXPECT_EQ(root("-1")->root().unsigned_number(), std::nullopt);
  EXPECT_EQ(root("2.0")->root().unsigned_number(), std::nullopt);
  EXPECT_EQ(root("2.5e-1")->root().number(), 0.25);
  EXPECT_EQ(root("1e999")->root().number(), std::nullopt);  // JSON, and yet no number of ours
}

// The peer's view of a value of ours: the same tree.
void expect_same(JsonValue ours, const Peer& theirs) {
  if (theirs.is_object()) {
    ASSERT_TRUE(ours.is_object());
    for (const auto& [name, value] : theirs.items()) expect_same(ours.find(name), value);
  } else if (theirs.is_array()) {
    ASSERT_TRUE(ours.is_array());
    ASSERT_EQ(ours.size(), theirs.size());
    size_t i = 0;
    for (const JsonValue value : ours) expect_same(value, theirs[i++]);
  } else if (theirs.is_string()) {
    EXPECT_EQ(ours.string(), theirs.get<std::string>());
  } else if (theirs.is_boolean()) {
    EXPECT_EQ(ours.boolean(), theirs.get<bool>());
  } else if (theirs.is_number_unsigned()) {
    EXPECT_EQ(ours.unsigned_number(), theirs.get<uint64_t>());
  } else if (theirs.is_number_integer()) {
    EXPECT_EQ(ours.integer(), theirs.get<int64_t>());
  } else if (theirs.is_number()) {
    EXPECT_EQ(ours.number(), theirs.get<double>());
  } else {
    EXPECT_TRUE(ours.exists() && ours.source() == "null");
  }
}

// The oracle: nlohmann's parser, on texts one to three random edits away from valid ones.
TEST(Json, AgreesWithAnotherParserOnDamagedTexts) {
  const std::vector<std::string> seeds = {
      kText, R"([0,-0,1.5,-2e3,1E+2,12345678901234567890,true,false,null,[],{}])",
      "\"\\u00e4\\ud83d\\ude00\\\\\\/\\b\\f\\n\\r\\t \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\"",
      R"( { "a" : [ 1 , { "b" : "\"" } ] , "a" : 2 } )"};
  constexpr std::string_view kAlphabet = "{}[]\",:\\0123456789.eE+-truefalsn \n\x01\x80\xC3\xED\xF4u";
  Rng rng(12);
  int valid = 0, invalid = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text = seeds[rng.below(seeds.size())];
    for (uint64_t edits = rng.below(4); edits > 0; --edits) {
      const size_t at = rng.below(text.size());
      const char c = kAlphabet[rng.below(kAlphabet.size())];
      const uint64_t how = rng.below(3);
      if (how == 0) text[at] = c;
      if (how == 1) text.insert(at, 1, c);
      if (how == 2) text.erase(at, 1);
    }
    const Result<JsonTree> ours = JsonTree::parse(text);
    const Peer theirs = Peer::parse(text, nullptr, /*allow_exceptions=*/false);
    // The peer also refuses numbers beyond the range of double.
    if (theirs.is_discarded() && ours.ok() && text.find_first_of("eE") != std::string::npos) continue;
    ASSERT_EQ(ours.ok(), !theirs.is_discarded()) << text << "\n" << ours.status().to_string();
    ++(ours.ok() ? valid : invalid);
    if (ours.ok()) expect_same(ours->root(), theirs);
    ASSERT_FALSE(testing::Test::HasFailure()) << text;
  }
  EXPECT_GT(valid, 10'000);
  EXPECT_GT(invalid, 10'000);
}

TEST(JsonWriter, PutsCommasBracketsAndLines) {
  JsonWriter json;
  json.object()
      .member("ranks", 4)
      .name("jobs")
      .array()
      .line()
      .value("a")
      .line()
      .value(true)
      .line()
      .end()
      .line();
  json.name("empty").array().end().name("none").object().end().member("x", -0.5).member("y", 60.0).end();
  EXPECT_EQ(json.text(),
            "{\"ranks\":4,\"jobs\":[\n\"a\",\ntrue\n],\n\"empty\":[],\"none\":{},\"x\":-0.5,\"y\":60.0}");
}

TEST(JsonWriter, WritesNumbersAsTheOtherLibraryDoes) {
  for (const double number : {0.0, 1.0, -1.0, 60.0, 0.05, 3600.0, 1e20, 1e-7, 123456.789, 1.0 / 3})
    EXPECT_EQ(JsonTree::parse(json_number(number))->root().number(), number);
  for (const double number : {0.0, 60.0, 0.05, 3600.0, 123456.789, 1.0 / 3})
    EXPECT_EQ(json_number(number), Peer(number).dump());
}

// The writer and the parser agree, and write strings as the other library does.
TEST(JsonWriter, AnyBytesBecomeAStringThatReadsBack) {
  Rng rng(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(rng.below(12), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.below(3) == 0 ? rng.below(256) : rng.below(128));
    std::string literal;
    append_json_string(bytes, &literal);
    const Result<JsonTree> json = JsonTree::parse(literal);
    ASSERT_TRUE(json.ok()) << literal;
    std::string again;
    append_json_string(*json->root().string(), &again);
    EXPECT_EQ(again, literal);
    if (literal.find("\xEF\xBF\xBD") != std::string::npos) continue;  // not UTF-8
    EXPECT_EQ(json->root().string(), bytes);
    EXPECT_EQ(literal, Peer(bytes).dump());
  }
}

}  // namespace
}  // namespace swale::json_test
