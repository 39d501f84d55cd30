#include "base/sealed_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace swale::sealed_document_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kFeatures[] = {"striped"};
constexpr DocumentFormat kFormat{.name = "swale-test", .version = 3, .features = kFeatures};

std::string sample(const DocumentFormat& format = kFormat, std::span<const std::string_view> features = {}) {
  JsonWriter json;
  begin_document(format, features, &json);
  json.line().member("count", 7).member("on", true).member("id", hex16(0xABCD)).line();
  json.name("parts").array().line().object().member("what", "a").end().line().end().line();
  return take_sealed(&json);
}

std::string message(const Status& status) { return std::string(status.message()); }

TEST(SealedDocument, ReadsWhatWasWritten) {
  const std::string text = sample();
  EXPECT_TRUE(is_sealed(text));
  const auto document = SealedDocument::parse(text, "DIR/x.json");
  ASSERT_TRUE(document.ok()) << document.status().to_string();
  EXPECT_TRUE(document->check_header(kFormat).ok());
  EXPECT_FALSE(document->has_feature("striped"));
  const DocumentObject root = document->root();
  EXPECT_EQ(*root.number("count", 0, 7), 7u);
  EXPECT_EQ(*root.flag("on"), true);
  EXPECT_EQ(*root.hex("id"), 0xABCDu);
  EXPECT_EQ(*root.below(*root.array("parts")->begin(), "part 0").text("what"), "a");
}

TEST(SealedDocument, AMemberThatDoesNotFitIsNamedWithItsPlace) {
  const std::string text = sample();
  const auto document = SealedDocument::parse(text, "DIR/x.json");
  const DocumentObject root = document->root();
  EXPECT_THAT(message(root.number("count", 8, 9).status()),
              AllOf(HasSubstr("DIR/x.json: member \"count\" (line 2, offset "),
                    HasSubstr("expected an integer from 8 to 9, found 7")));
  EXPECT_THAT(message(root.flag("count").status()), HasSubstr("expected true or false"));
  EXPECT_THAT(message(root.hex("on").status()), HasSubstr("16 lower-case hex digits, found true"));
  EXPECT_THAT(message(root.array("id").status()), HasSubstr("expected an array, found \"000000000000abcd\""));
  const DocumentObject part = root.below(*root.array("parts")->begin(), "part 0");
  EXPECT_THAT(message(part.text("none").status()),
              AllOf(HasSubstr("DIR/x.json: part 0: member \"none\" (line 4, "), HasSubstr("found nothing")));
}

TEST(SealedDocument, EveryChangedByteIsNoticed) {
  const std::string text = sample();
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(SealedDocument::parse(damaged, "x").status().code(), Code::kCorruption) << at;
    EXPECT_EQ(SealedDocument::parse(text.substr(0, at), "x").status().code(), Code::kCorruption) << at;
  }
  EXPECT_FALSE(is_sealed(text + "\n"));
}

TEST(SealedDocument, WhatIsNoJsonObjectSaysWhereThoughItsChecksumIsRight) {
  const auto sealed = [](std::string covered) { return covered + seal_of(covered); };
  EXPECT_THAT(message(SealedDocument::parse(sealed("{\"a\":?,"), "x").status()),
              AllOf(HasSubstr("x: line 1, offset 5: "), HasSubstr("its checksum is right")));
  EXPECT_THAT(message(SealedDocument::parse(sealed("{\"a\":" + std::string(40, '[') + ","), "x").status()),
              HasSubstr("nested more than 32 deep"));
}

TEST(SealedDocument, FormatsVersionsAndFeaturesThatAreNotOursAreRefused) {
  const auto check = [](const std::string& text) {
    return SealedDocument::parse(text, "x")->check_header(kFormat);
  };
  EXPECT_TRUE(check(sample(kFormat, kFeatures)).ok());
  const std::string striped = sample(kFormat, kFeatures);
  EXPECT_TRUE(SealedDocument::parse(striped, "x")->has_feature("striped"));
  const Status other = check(sample({.name = "swale-other"}));
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(message(other),
              AllOf(HasSubstr("x: is a document of the format \"swale-other\""), Not(HasSubstr("restore"))));
  EXPECT_TRUE(check(sample({.name = "swale-test", .version = 2})).ok());
  const Status newer = check(sample({.name = "swale-test", .version = 4}));
  EXPECT_EQ(newer.code(), Code::kUnsupported);
  EXPECT_THAT(message(newer), HasSubstr("version 4, this build knows up to 3; read it with a newer swale"));
  constexpr std::string_view kUnknown[] = {"striped", "folded"};
  const Status unknown = check(sample(kFormat, kUnknown));
  EXPECT_EQ(unknown.code(), Code::kUnsupported);
  EXPECT_THAT(message(unknown), HasSubstr("[\"striped\",\"folded\"]"));
}

}  // namespace
}  // namespace swale::sealed_document_test
