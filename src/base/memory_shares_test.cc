#include "base/memory_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace swale::memory_shares_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kLeast = 4 * kMiB;
constexpr uint64_t kWish = 64 * kMiB;
constexpr MemoryHolder kDirectory{"directory", "DIR"};
constexpr MemoryLimit kAdvice{2 * kWish, MemoryLimit::Kind::kAdvice};
constexpr MemoryLimit kHard{2 * kWish, MemoryLimit::Kind::kHard};

MemoryBudget::Reservation open_one(MemoryShares& shares, const MemoryLimit& limit) {
  return shares.take(kDirectory, *shares.offer(kDirectory, kLeast, kWish, limit), limit).value();
}

// The arithmetic of docs/design/shared-resources.md.
TEST(MemoryShares, EachOneGetsHalfOfWhatIsFree) {
  MemoryShares shares;
  std::vector<MemoryBudget::Reservation> open;
  std::vector<uint64_t> mebibytes;
  for (int i = 0; i < 10; ++i) {
    open.push_back(open_one(shares, kAdvice));
    mebibytes.push_back(open.back().bytes() / kMiB);
  }
  EXPECT_THAT(mebibytes, ElementsAre(64, 32, 16, 8, 4, 4, 4, 4, 4, 4));
  EXPECT_EQ(shares.used(), 144 * kMiB);
}

TEST(MemoryShares, WhatIsClosedIsFreeForTheNextOne) {
  MemoryShares shares;
  std::vector<MemoryBudget::Reservation> open;
  for (int i = 0; i < 4; ++i) open.push_back(open_one(shares, kAdvice));
  open.erase(open.begin());
  EXPECT_EQ(shares.used(), 56 * kMiB);
  EXPECT_EQ(open_one(shares, kAdvice).bytes(), 36 * kMiB);
  open.clear();
  EXPECT_EQ(shares.used(), 0u);
  EXPECT_EQ(open_one(shares, kAdvice).bytes(), kWish);
}

TEST(MemoryShares, AUsersLimitIsKeptAndNamesTheHolders) {
  MemoryShares shares;
  std::vector<MemoryBudget::Reservation> open;
  Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    const auto share = shares.offer(kDirectory, kLeast, kWish, kHard);
    refused = share.status();
    if (share.ok())
      open.push_back(shares.take({"directory", fmt::format("/dir{}", i)}, *share, kHard).value());
    EXPECT_LE(shares.used(), kHard.bytes);
  }
  EXPECT_EQ(open.size(), 6u);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("4194304 bytes are needed, 0 of this process's 134217728 are free"),
                    HasSubstr("give at least 138412032,"),
                    HasSubstr("directory /dir0: 67108864, directory /dir1: 33554432")));
  open.pop_back();
  EXPECT_EQ(*shares.offer(kDirectory, kLeast, kWish, kHard), kLeast);
}

// A share that was offered and then taken by somebody else.
TEST(MemoryShares, TakeChecksAgain) {
  MemoryShares shares;
  const uint64_t first = *shares.offer(kDirectory, kWish, kWish, kHard);
  const auto other = shares.take({"directory", "/other"}, 100 * kMiB, kHard);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(shares.take({"directory", "/dir"}, first, kHard).status().code(), Code::kResourceExhausted);
}

TEST(MemoryShares, WhoWishesAnExactAmountGetsItOrNothing) {
  MemoryShares shares;
  EXPECT_EQ(*shares.offer(kDirectory, 100 * kMiB, 100 * kMiB, kAdvice), 100 * kMiB);
  const auto held = shares.take({"directory", "/dir"}, 100 * kMiB, kAdvice);
  EXPECT_EQ(*shares.offer(kDirectory, 100 * kMiB, 100 * kMiB, kAdvice), 100 * kMiB);  // a default gives way
  EXPECT_FALSE(shares.offer(kDirectory, 100 * kMiB, 100 * kMiB, kHard).ok());
}

// By default a metadata store does not leave the least to a directory; a user's limit is one for all.
TEST(MemoryShares, ADefaultIsDividedAmongHoldersOfOneKindAndAUsersLimitAmongAll) {
  MemoryShares shares;
  const auto store = shares.take({"store", "/meta"}, 120 * kMiB, kAdvice);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(*shares.offer(kDirectory, kLeast, kWish, kAdvice), kWish);
  EXPECT_EQ(*shares.offer({"store", "/other"}, kLeast, kWish, kAdvice), kLeast);
  EXPECT_EQ(*shares.offer(kDirectory, kLeast, kWish, kHard), kLeast);
}

TEST(MemoryShares, AShareGrowsWithinTheUsersLimitOrStaysAsItWas) {
  MemoryShares shares;
  auto store = shares.take({"store", "/meta"}, 100 * kMiB, kHard);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(shares.resize(&*store, 128 * kMiB, kHard).ok());
  EXPECT_EQ(shares.used(), 128 * kMiB);
  const Status refused = shares.resize(&*store, 129 * kMiB, kHard);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give at least 135266304"));
  EXPECT_EQ(store->bytes(), 128 * kMiB);
  EXPECT_TRUE(shares.resize(&*store, kMiB, kHard).ok());
  EXPECT_EQ(shares.used(), kMiB);
  EXPECT_TRUE(shares.resize(&*store, 129 * kMiB, kAdvice).ok());
}

}  // namespace
}  // namespace swale::memory_shares_test
