#include "tools/bytes_text.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swale::tools::bytes_text_test {
namespace {

TEST(BytesText, ReadsEveryNotation) {
  EXPECT_EQ(*parse_key("atom-17"), "atom-17");
  EXPECT_EQ(*parse_key("0x61620A"), "ab\n");
  EXPECT_EQ(*parse_key("u32:258"), std::string("\x02\x01\0\0", 4));
  EXPECT_EQ(*parse_key("u64:1"), std::string("\x01\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(*parse_key("u64:18446744073709551615"), std::string(8, '\xff'));
}

TEST(BytesText, RefusesWhatIsHalfANotation) {
  for (const char* text : {"", "0x", "0x1", "0xzz", "u64:", "u64:-1", "u64:18446744073709551616",
                           "u32:4294967296", "u32:1 ", "u64:1.5"}) {
    EXPECT_EQ(parse_key(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(BytesText, WhatItShowsItReadsBack) {
  Rng rng(1);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes(1 + rng.below(12), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.chance(1, 8) ? rng.next() : 'a' + rng.below(26));
    for (const Notation notation : {Notation::kAuto, Notation::kHex, Notation::kU64}) {
      const std::string shown = show(bytes, notation);
      ASSERT_EQ(*parse_key(shown), bytes) << shown;
    }
    EXPECT_EQ(show(bytes, Notation::kRaw), bytes);
  }
  for (const char* tricky : {"0x12", "u64:5", "u32:", "a b"}) {
    EXPECT_EQ(*parse_key(show(tricky, Notation::kAuto)), tricky);
  }
}

TEST(BytesText, KeysThatAreNumbersAreWrittenAsSuch) {
  using run::KeyType;
  EXPECT_EQ(*parse_key("4711", KeyType::kU64), *parse_key("u64:4711"));
  EXPECT_EQ(*parse_key("-1", KeyType::kI64), std::string(8, '\xff'));
  EXPECT_EQ(*parse_key("0x61", KeyType::kU64), "a") << "other notations go on";
  for (const char* text : {"", "-1", "18446744073709551616", "17 ", "atom-17", "1.5"})
    EXPECT_EQ(parse_key(text, KeyType::kU64).status().code(), Code::kInvalidArgument) << text;
  for (const char* text : {"9223372036854775808", "--1", "x"})
    EXPECT_EQ(parse_key(text, KeyType::kI64).status().code(), Code::kInvalidArgument) << text;
  const std::string most = *parse_key("u64:18446744073709551615");
  EXPECT_EQ(show_key(most, Notation::kAuto, KeyType::kU64), "18446744073709551615");
  EXPECT_EQ(show_key(most, Notation::kU64, KeyType::kI64), "-1");
  EXPECT_EQ(show_key(most, Notation::kHex, KeyType::kU64), "0xffffffffffffffff");
  EXPECT_EQ(show_key("17", Notation::kAuto, KeyType::kU64), "0x3137") << "of another length";
  EXPECT_TRUE(shows_number(most, Notation::kAuto, KeyType::kU64));
  EXPECT_FALSE(shows_number(most, Notation::kHex, KeyType::kU64) ||
               shows_number("17", Notation::kAuto, KeyType::kU64) ||
               shows_number(most, Notation::kAuto, KeyType::kBytes) ||
               shows_number(most, Notation::kAuto, {}));
}

TEST(BytesText, KeysThatAreTextStandForThemselves) {
  for (const std::string key : {"0x12", "u64:5", "4711", "Gr\xc3\xbc\xc3\x9f", "\xf0\x9f\x8c\x8a"}) {
    EXPECT_EQ(*parse_key(key, run::KeyType::kText), key);
    EXPECT_EQ(show_key(key, Notation::kAuto, run::KeyType::kText), key);
  }
  for (const std::string key :
       {"tab\t", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x7f", "\xff"})
    EXPECT_EQ(show_key(key, Notation::kAuto, run::KeyType::kText).substr(0, 2), "0x");
  EXPECT_FALSE(parse_key("", run::KeyType::kText).ok());
}

TEST(BytesText, WhatItShowsOfAnyKeyOfNumbersItReadsBack) {
  Rng rng(2);
  for (int i = 0; i < 2'000; ++i) {
    std::string key(rng.chance(1, 4) ? 1 + rng.below(12) : 8, '\0');
    for (char& c : key) c = static_cast<char>(rng.next());
    for (const auto type : {run::KeyType::kU64, run::KeyType::kI64, run::KeyType::kBytes}) {
      for (const Notation notation : {Notation::kAuto, Notation::kHex, Notation::kU64})
        ASSERT_EQ(*parse_key(show_key(key, notation, type), type), key);
    }
  }
}

}  // namespace
}  // namespace swale::tools::bytes_text_test
