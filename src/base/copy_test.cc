#include "base/copy.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace swale {
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

}  // namespace
}  // namespace swale
