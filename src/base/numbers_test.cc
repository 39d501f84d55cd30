#include "base/numbers.h"

#include <gtest/gtest.h>

#include <vector>

namespace swale::numbers_test {
namespace {

template <class To, class From>
concept Passes = requires(void (*take)(To), From from) { take(from); };
template <class A, class B>
concept Comparable = requires(A a, B b) { a == b; } || requires(A a, B b) { a < b; };
template <class A, class B>
concept Subtractable = requires(A a, B b) { a - b; };

TEST(Numbers, OfDifferentKindsDoNotReplaceEachOther) {
  static_assert(Passes<EpochNumber, EpochNumber>);
  static_assert(!Passes<EpochNumber, PartitionNumber>);
  static_assert(!Passes<PartitionNumber, EpochNumber>);
  static_assert(!Passes<BlockNumber, EpochNumber>);
  static_assert(!Passes<EpochNumber, uint32_t>, "only by name");
  static_assert(!Comparable<EpochNumber, PartitionNumber>);
  static_assert(!Subtractable<BlockNumber, EpochNumber>);
  static_assert(Comparable<EpochNumber, EpochNumber>);
  static_assert(Comparable<EpochNumber, uint32_t>);
}

TEST(Numbers, AreReadAsIntegers) {
  const std::vector<int> of_epochs{7, 8, 9};
  EXPECT_EQ(of_epochs[EpochNumber(2)], 9);
  EXPECT_EQ(fmt::format("epoch {:03}", EpochNumber(2)), "epoch 002");
  EXPECT_EQ(BlockNumber(3) * 4096, 12288u);
  EXPECT_LT(PartitionNumber(3), 4u);
  EXPECT_EQ(EpochNumber(), EpochNumber(0));
}

TEST(Numbers, ANumberAndACountMakeANumberOfTheSameKind) {
  static_assert(std::same_as<decltype(EpochNumber(1) + 1), EpochNumber>);
  static_assert(std::same_as<decltype(BlockNumber(1) + uint32_t{1}), BlockNumber>);
  static_assert(std::same_as<decltype(BlockNumber(5) - BlockNumber(3)), uint64_t>);
  // Nothing is cut off.
  static_assert(std::same_as<decltype(EpochNumber(1) + uint64_t{1}), uint64_t>);
  BlockNumber block(4);
  ++block;
  block += 2;
  EXPECT_EQ(block, BlockNumber(7));
  EXPECT_EQ(block - 7, BlockNumber(0));
}

}  // namespace
}  // namespace swale::numbers_test
