#include "imd/format/json_place.h"

#include <gtest/gtest.h>

#include <string>

namespace swale::imd {
namespace {

const std::string kText = R"({"a":1,
"list":[
{"x":1,"y":[10,20]},
{"x":2,"y":[30,"forty"],"z":{"deep":null}}
],
"a\nb":{"c":true},
"last":"end"})";

uint64_t offset_of(const std::string& part) { return kText.find(part); }

TEST(JsonPlace, IsThatOfTheMemberOnItsLine) {
  struct Case {
    std::vector<std::string> way;
    std::string begins_with;
    uint64_t line;
  };
  for (const Case& c : {Case{{"a"}, "\"a\":1", 1}, Case{{"list"}, "\"list\"", 2},
                        Case{{"list", "0"}, "{\"x\":1", 3}, Case{{"list", "1", "x"}, "\"x\":2", 4},
                        Case{{"list", "1", "z", "deep"}, "\"deep\"", 4}, Case{{"last"}, "\"last\"", 7}}) {
    const JsonPlace place = find_in_json(kText, c.way);
    EXPECT_EQ(place.offset, offset_of(c.begins_with)) << c.begins_with;
    EXPECT_EQ(place.line, c.line) << c.begins_with;
  }
  EXPECT_EQ(find_in_json(kText, {"list", "1", "y", "1"}).line, 4u);
  EXPECT_EQ(find_in_json(kText, {"a\nb", "c"}).line, 6u);
  EXPECT_EQ(find_in_json(kText, {"last"}).text(), "line 7, offset " + std::to_string(offset_of("\"last\"")));
}

TEST(JsonPlace, OfWhatIsMissingIsWhereItWouldBe) {
  EXPECT_EQ(find_in_json(kText, {"list", "1", "missing"}).offset, offset_of("{\"x\":2"));
  EXPECT_EQ(find_in_json(kText, {"list", "7"}).offset, offset_of("\"list\""));
  EXPECT_EQ(find_in_json(kText, {"a", "below a number"}).offset, offset_of("\"a\":1"));
  EXPECT_EQ(find_in_json(kText, {"nothing"}).offset, 0u);
  EXPECT_EQ(find_in_json("", {"nothing"}).offset, 0u);
}

TEST(JsonPlace, OfAMistakeIsWhereTheTextStopsBeingJson) {
  EXPECT_FALSE(json_mistake(kText).has_value());
  const auto mistake = json_mistake("{\"a\":1,\n\"b\":?}");
  ASSERT_TRUE(mistake.has_value());
  EXPECT_EQ(mistake->line, 2u);
  EXPECT_EQ(mistake->offset, 12u);
  EXPECT_TRUE(json_mistake("").has_value());
  EXPECT_TRUE(json_mistake(kText.substr(0, 30)).has_value());
}

TEST(JsonText, IsTakenToADepthOf32) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_FALSE(json_too_deep(nested(kJsonDepthMax)));
  EXPECT_EQ(json_too_deep(nested(kJsonDepthMax + 1)), kJsonDepthMax);
  EXPECT_EQ(json_too_deep("{\"a\":" + nested(kJsonDepthMax) + "}"), 5 + kJsonDepthMax - 1);
  EXPECT_EQ(json_mistake(nested(kJsonDepthMax + 1))->offset, kJsonDepthMax);
  EXPECT_FALSE(json_mistake(nested(kJsonDepthMax)));
  // One after the other, and what stands in strings, is not nested.
  std::string flat = "[";
  for (int i = 0; i < 1'000; ++i) flat += "[{}],";
  EXPECT_FALSE(json_too_deep(flat + "0]"));
  EXPECT_FALSE(json_too_deep("[\"" + nested(99) + "\",\"\\\"" + std::string(99, '{') + "\",\"\\\\\"]"));
  EXPECT_TRUE(json_too_deep("[\"\\\\\"," + nested(kJsonDepthMax)));
  EXPECT_FALSE(json_too_deep("]]]" + nested(kJsonDepthMax)));
}

}  // namespace
}  // namespace swale::imd
