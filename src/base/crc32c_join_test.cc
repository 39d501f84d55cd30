#include "base/crc32c_join.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crc32c.h"

namespace swale {
namespace {

TEST(Crc32cJoin, IsTheValueOfTheConcatenation) {
  const std::string check = "123456789";
  for (size_t cut = 0; cut <= check.size(); ++cut) {
    EXPECT_EQ(crc32c_join(crc32c(check.substr(0, cut)), crc32c(check.substr(cut)), check.size() - cut),
              0xe3069283u)
        << cut;
  }
  std::string long_text(300'001, '\0');
  for (size_t i = 0; i < long_text.size(); ++i) long_text[i] = static_cast<char>(i * 2'654'435'761 >> 11);
  const Bytes all = long_text;
  for (const size_t cut : {1u, 4096u, 65'537u, 300'000u}) {
    EXPECT_EQ(crc32c_join(crc32c(all.substr(0, cut)), crc32c(all.substr(cut)), all.size() - cut),
              crc32c(all));
  }
}

TEST(Crc32cJoin, ZerosNeedNotBeRead) {
  for (const uint64_t bytes : {0u, 1u, 7u, 4096u, 1'000'003u}) {
    const std::string zeros(bytes, '\0');
    EXPECT_EQ(crc32c_extend_zeros(0, bytes), crc32c(zeros)) << bytes;
    EXPECT_EQ(crc32c_extend_zeros(0xe3069283, bytes), crc32c_extend(0xe3069283, zeros)) << bytes;
  }
  const uint64_t large = uint64_t{1} << 45;  // 32 TiB: in two steps the same as in one
  EXPECT_EQ(crc32c_extend_zeros(crc32c_extend_zeros(17, large - 3), 3), crc32c_extend_zeros(17, large));
}

}  // namespace
}  // namespace swale
