#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crc32c_of_memory.h"
#include "base/rng.h"

namespace swale::crc32c_test {
namespace {

// One bit at a time, as in the definition.
uint32_t reference(Bytes bytes) {
  uint32_t state = ~uint32_t{0};
  for (const char byte : bytes) {
    state ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~state;
}

TEST(Crc32c, HasTheStandardVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, EqualsTheReferenceAtEveryLengthAndAlignment) {
  Rng rng(1);
  std::string bytes(5000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.next());
  for (size_t start = 0; start < 9; ++start) {
    for (size_t length = 0; length < 300; ++length) {
      const Bytes part = Bytes(bytes).substr(start, length);
      ASSERT_EQ(crc32c(part), reference(part)) << start << " " << length;
    }
    const Bytes rest = Bytes(bytes).substr(start);
    ASSERT_EQ(crc32c(rest), reference(rest)) << start;
  }
}

TEST(Crc32c, ExtendsOverAnyCut) {
  const std::string bytes = "a checksum of the whole from those of its parts";
  for (size_t cut = 0; cut <= bytes.size(); ++cut)
    EXPECT_EQ(crc32c_extend(crc32c(Bytes(bytes).substr(0, cut)), Bytes(bytes).substr(cut)), crc32c(bytes));
}

TEST(Crc32c, OfMemoryIsTheSame) {
  Rng rng(2);
  std::string bytes(70'000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.next());
  for (const size_t length : {0u, 1u, 2047u, 2048u, 2049u, 4096u, 6143u, 6145u, 65'536u, 69'999u})
    EXPECT_EQ(crc32c_of_memory(Bytes(bytes).substr(1, length)), crc32c(Bytes(bytes).substr(1, length)))
        << length;
}

}  // namespace
}  // namespace swale::crc32c_test
