#include "fs/log/plain_crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/rng.h"

namespace swale::fs::plain_crc32c_test {
namespace {

TEST(PlainCrc32c, IsThatOfTheBaseAtEachLengthPlaceAndBeginning) {
  Rng rng(11);
  std::string all((64 << 10) + 64, '\0');
  for (char& byte : all) byte = static_cast<char>(rng.next());
  std::vector<size_t> lengths = {0, 1, 7, 8, 9, 63, 4096, 12'287, 12'288, 12'289, 24'576, 24'583, 64 << 10};
  for (int i = 0; i < 200; ++i) lengths.push_back(rng.below((64 << 10) + 1));
  for (const size_t length : lengths) {
    const Bytes bytes = Bytes(all).substr(rng.below(64), length);
    const auto before = static_cast<uint32_t>(rng.next());
    ASSERT_EQ(plain_crc32c(before, bytes.data(), bytes.size()), crc32c_extend(before, bytes)) << length;
    ASSERT_EQ(~crc32c_by_table(~before, bytes.data(), bytes.size()), crc32c_extend(before, bytes)) << length;
  }
}

}  // namespace
}  // namespace swale::fs::plain_crc32c_test
