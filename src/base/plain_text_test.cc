#include "base/plain_text.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace swale::plain_text_test {
namespace {

constexpr TextUse kUses[] = {TextUse::kLine, TextUse::kPage, TextUse::kJson};

TEST(PlainText, EscapesWhatATerminalObeys) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x1b[2J", "\\x1b[2J"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"a\nb\r\tc", "a\\nb\\r\\tc"},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u009b31m"},
      {"\xc2\x80 \xc2\x9f", "\\u0080 \\u009f"},
      {"\xd8\x9c", "\\u061c"},
      {"\xe2\x80\x8e\xe2\x80\x8f", "\\u200e\\u200f"},
      {"\xe2\x80\xaa\xe2\x80\xae", "\\u202a\\u202e"},
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},
      {"\xe2\x80\xa8", "\\u2028"},
      {"\x9b", "\\x9b"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc3", "\\xc3"},                             // cut off
      {"\xc0\x9b", "\\xc0\\x9b"},                    // too long a form of ESC
      {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},           // of C1
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // half of a pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond Unicode
      {"Gr\xc3\xbc\xc3\x9f \xf0\x9f\x8c\x8a \\x1b \\", "Gr\xc3\xbc\xc3\x9f \xf0\x9f\x8c\x8a \\x1b \\"},
      {"\xc2\xa0\xe2\x80\xa6", "\xc2\xa0\xe2\x80\xa6"},  // the neighbours of what is escaped
      {"", ""},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(plain_text(text), expected);
    EXPECT_EQ(is_plain(text), text == expected) << expected;
  }
}

TEST(PlainText, APageKeepsItsLinesAndJsonIsJson) {
  EXPECT_EQ(plain_text("a\tb\n\x1b", TextUse::kPage), "a\tb\n\\x1b");
  EXPECT_EQ(plain_text("\r\n", TextUse::kPage), "\\r\n");
  EXPECT_EQ(plain_text("{\"a\":\n\"\x7f\xc2\x9b\xe2\x80\xae\xff\"}", TextUse::kJson),
            "{\"a\":\n\"\\u007f\\u009b\\u202e\\ufffd\"}");
}

TEST(PlainText, OfAnyBytesNothingIsObeyedAndTwiceIsAsOnce) {
  Rng rng(9);
  for (int i = 0; i < 20'000; ++i) {
    std::string text(rng.below(40), '\0');
    for (char& c : text) {
      constexpr char kLikely[] = "\x1b\xc2\xe2\x80\x81\xae\x9b\n\\x";
      c = static_cast<char>(rng.chance(1, 2) ? kLikely[rng.below(sizeof(kLikely) - 1)]
                                             : static_cast<char>(rng.next()));
    }
    for (const TextUse use : kUses) {
      const std::string once = plain_text(text, use);
      EXPECT_EQ(plain_text(once, use), once);
      EXPECT_TRUE(is_plain(once, use));
      EXPECT_EQ(is_plain(text, use), once == text);
      for (const char c : once) {
        const auto byte = static_cast<uint8_t>(c);
        EXPECT_TRUE((byte >= 0x20 && byte != 0x7f) || (use != TextUse::kLine && (c == '\n' || c == '\t')));
      }
      EXPECT_EQ(once.find("\xc2\x9b"), std::string::npos);
      EXPECT_EQ(once.find("\xe2\x80\xae"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace swale::plain_text_test
