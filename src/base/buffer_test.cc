#include "base/buffer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace swale::buffer_test {
namespace {

uintptr_t address(const Buffer& buffer) { return reinterpret_cast<uintptr_t>(buffer.data()); }

TEST(Buffer, IsAlignedForItsSize) {
  EXPECT_EQ(address(*Buffer::allocate(1)) % 64, 0u);
  EXPECT_EQ(address(*Buffer::allocate(Buffer::kPageBytes)) % Buffer::kPageBytes, 0u);
  EXPECT_EQ(address(*Buffer::allocate(3 * kMiB, HugePages::kAdvise)) % Buffer::kHugePageBytes, 0u);
}

TEST(Buffer, EmptyHasNoMemory) {
  Result<Buffer> empty = Buffer::allocate(0);
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_EQ(empty->size(), 0u);
  empty->touch();
}

TEST(Buffer, AbsurdSizeIsAnErrorAndNotACrash) {
  const Result<Buffer> refused = Buffer::allocate(size_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
}

TEST(Buffer, MovesItsBytes) {
  Buffer first = Buffer::allocate(10000).value();
  std::memset(first.data(), 'a', first.size());
  Buffer second = std::move(first);
  Buffer third;
  third = std::move(second);
  EXPECT_EQ(third.bytes(), std::string(10000, 'a'));
}

TEST(Buffer, TouchKeepsTheContent) {
  Buffer buffer = Buffer::allocate(3 * kMiB).value();
  std::memset(buffer.data(), 'a', buffer.size());
  buffer.touch();
  EXPECT_EQ(buffer.bytes(), std::string(3 * kMiB, 'a'));
}

}  // namespace
}  // namespace swale::buffer_test
