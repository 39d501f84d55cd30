#include "base/copy.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace swale::copy_test {
namespace {

TEST(CopyBytes, CopiesEveryLengthAndNothingElse) {
  Rng rng(3);
  for (size_t bytes = 0; bytes <= 2 * kInlineCopyBytesMax + 1; ++bytes) {
    std::string from(bytes, '\0');
    for (char& byte : from) byte = static_cast<char>(rng.next());
    std::string to(bytes + 32, '#');
    copy_bytes(to.data() + 16, from.data(), bytes);
    EXPECT_EQ(to, std::string(16, '#') + from + std::string(16, '#')) << bytes;
  }
}

TEST(CopyBytes, CopiesPairsOfWordsAndNothingElse) {
  Rng rng(4);
  const auto expect_copy = [&](size_t bytes, auto copy) {
    std::string from(bytes, '\0');
    for (char& byte : from) byte = static_cast<char>(rng.next());
    std::string to(bytes + 32, '#');
    copy(to.data() + 16, from.data(), bytes);
    EXPECT_EQ(to, std::string(16, '#') + from + std::string(16, '#')) << bytes;
  };
  expect_copy(16, copy_pairs<1, false>);
  expect_copy(48, copy_pairs<3, false>);
  for (size_t rest = 1; rest < 16; ++rest) {
    expect_copy(16 + rest, copy_pairs<1, true>);
    expect_copy(64 + rest, copy_pairs<4, true>);
  }
}

}  // namespace
}  // namespace swale::copy_test
