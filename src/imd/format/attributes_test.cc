#include "imd/format/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace swale::imd::attributes_test {
namespace {

using testing::HasSubstr;

TEST(Attributes, AreKeptAsTheyStandOnOneLine) {
  EXPECT_EQ(check_attributes("{\"a\": 1.50,\n\t\"b\":\"x\\ny\"}\n").value(), R"({"a": 1.50,  "b":"x\ny"})");
  EXPECT_EQ(check_attributes("{}").value(), kNoAttributes);
  EXPECT_EQ(check_attributes(" {\n} ").value(), kNoAttributes);
  const std::string longest = fmt::format("{{\"a\":\"{}\"}}", std::string(kAttributesBytesMax - 8, 'x'));
  ASSERT_EQ(longest.size(), kAttributesBytesMax);
  EXPECT_EQ(check_attributes(longest).value(), longest);
}

TEST(Attributes, MustBeOneObjectWithinTheLimits) {
  const std::string deep = "{\"a\":" + std::string(31, '[') + std::string(31, ']') + "}";
  const std::string large = fmt::format("{{\"a\":\"{}\"}}", std::string(kAttributesBytesMax - 7, 'x'));
  for (const auto& [json, says] : {std::pair<std::string, const char*>{"", "no JSON"},
                                   {"[1]", "no JSON object"},
                                   {"{\"a\":}", "offset 5"},
                                   {"{},\"directory\":{}", "no JSON"},
                                   {"{\"a\":\"\xff\"}", "no JSON"},
                                   {std::string("{\"a\":1}\0", 8), "no JSON"},
                                   {deep, "deep"},
                                   {large, "at most 65536"}}) {
    const Status status = check_attributes(json).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << json;
    EXPECT_EQ(status.scope(), Scope::kOperation);
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  EXPECT_TRUE(check_attributes("{\"a\":" + std::string(30, '[') + std::string(30, ']') + "}").ok());
}

TEST(Attributes, ALineComesBackAndEveryFlippedBitIsNoticed) {
  const Attributes given{R"({"units":"lj"})", R"({"box":[1, 2]})"};
  std::string line = encode_attributes_line(0xabc, EpochNumber(7), given);
  EXPECT_EQ(line.back(), '\n');
  const AttributesLine found = decode_attributes_line(line, "FILE", 30).value();
  EXPECT_EQ(found.epoch_id, 0xabcu);
  EXPECT_EQ(found.attributes.directory, given.directory);
  EXPECT_EQ(found.attributes.epoch, given.epoch);
  for (size_t bit = 0; bit < line.size() * 8; ++bit) {
    line[bit / 8] = static_cast<char>(line[bit / 8] ^ (1 << bit % 8));
    const Status status = decode_attributes_line(line, "FILE", 30).status();
    EXPECT_EQ(status.code(), Code::kCorruption) << "bit " << bit;
    EXPECT_THAT(std::string(status.message()), HasSubstr("FILE: offset 30"));
    line[bit / 8] = static_cast<char>(line[bit / 8] ^ (1 << bit % 8));
  }
  for (size_t bytes = 0; bytes < line.size(); ++bytes)
    EXPECT_EQ(decode_attributes_line(line.substr(0, bytes), "FILE", 0).status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::imd::attributes_test
