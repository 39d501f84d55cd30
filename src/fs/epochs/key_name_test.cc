#include "fs/epochs/key_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/rng.h"

namespace swale::fs {
namespace {

using run::KeyType;

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

TEST(KeyName, IsTheKeyAsPeopleWriteIt) {
  EXPECT_EQ(name_of_key(bytes_of<uint64_t>(4711), KeyType::kU64), "4711");
  EXPECT_EQ(name_of_key(bytes_of(std::numeric_limits<uint64_t>::max()), KeyType::kU64),
            "18446744073709551615");
  EXPECT_EQ(name_of_key(bytes_of<int64_t>(-3), KeyType::kI64), "-3");
  EXPECT_EQ(name_of_key("electron.0017", {}), "electron.0017");
  EXPECT_EQ(name_of_key("größe", KeyType::kText), "größe");
  EXPECT_EQ(name_of_key("größe", {}), "0x6772c3b6c39f65");
}

TEST(KeyName, WhatNoFileCanBeCalledIsHex) {
  for (const auto type : {std::optional<KeyType>(), std::optional(KeyType::kText)}) {
    EXPECT_EQ(name_of_key("a/b", type), "0x612f62");
    EXPECT_EQ(name_of_key(".", type), "0x2e");
    EXPECT_EQ(name_of_key("..", type), "0x2e2e");
    EXPECT_EQ(name_of_key("0x41", type), "0x30783431");
    EXPECT_EQ(name_of_key(Bytes("\0", 1), type), "0x00");
    EXPECT_EQ(name_of_key("a\nb", type), "0x610a62");
    EXPECT_EQ(name_of_key(std::string(255, 'a'), type), std::string(255, 'a'));
    EXPECT_EQ(name_of_key(std::string(126, '\n'), type)->size(), 254U);
    EXPECT_EQ(name_of_key(std::string(127, '\n'), type), std::nullopt);
  }
}

TEST(KeyName, NoKeyHasTwoNames) {
  for (const char* other :
       {"007", "+7", " 7", "7 ", "0x0700000000000000", "-0", "18446744073709551616", "", "7x"})
    EXPECT_EQ(key_of_name(other, KeyType::kU64), std::nullopt) << other;
  for (const char* other : {"0x41", "0x", "0xa", "0x2E2E", "0xzz"})
    EXPECT_EQ(key_of_name(other, KeyType::kText), std::nullopt) << other;
  EXPECT_EQ(key_of_name("-3", KeyType::kI64), bytes_of<int64_t>(-3));
}

TEST(KeyName, ComesBackForAnyBytes) {
  Rng rng(7);
  for (const auto type :
       {std::optional<KeyType>(), std::optional(KeyType::kBytes), std::optional(KeyType::kText),
        std::optional(KeyType::kU64), std::optional(KeyType::kI64)}) {
    for (int i = 0; i < 2'000; ++i) {
      const bool is_number = type == KeyType::kU64 || type == KeyType::kI64;
      std::string key(is_number ? 8 : 1 + rng.below(126), '\0');
      const uint64_t letters = rng.below(2) == 0 ? 256 : 4;  // all bytes, or few of them: "..", "0x"
      for (char& c : key) c = letters == 256 ? static_cast<char>(rng.below(256)) : "0x./"[rng.below(4)];
      const auto name = name_of_key(key, type);
      ASSERT_TRUE(name);
      ASSERT_TRUE(!name->empty() && name->size() <= 255 && name->find('/') == std::string::npos &&
                  *name != "." && *name != ".." && std::strlen(name->c_str()) == name->size())
          << *name;
      ASSERT_EQ(key_of_name(*name, type), key) << *name;
    }
  }
}

}  // namespace
}  // namespace swale::fs
