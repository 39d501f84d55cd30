#include "tools/bytes_text.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swale::tools {
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

}  // namespace
}  // namespace swale::tools
