#include "net/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace swale::net {
namespace {

using testing::ElementsAre;

TEST(SoloBootstrap, IsAJobOfOneRank) {
  const auto solo = solo_bootstrap();
  EXPECT_EQ(solo->rank(), 0);
  EXPECT_EQ(solo->size(), 1);
  EXPECT_THAT(*solo->allgather("mine"), ElementsAre("mine"));
}

// Runs `body(bootstrap)` as each rank of a local group.
void as_ranks(int32_t size, const std::function<void(Rank, std::shared_ptr<LocalGroup>)>& body) {
  auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) threads.emplace_back([=] { body(rank, group); });
  for (auto& each : threads) each.join();
}

TEST(LocalBootstrap, GathersManyRounds) {
  as_ranks(4, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = local_bootstrap(group, rank);
    for (int round = 0; round < 200; ++round) {
      const auto all = bootstrap->allgather(fmt::format("{}:{}", rank, round));
      ASSERT_TRUE(all.ok());
      for (size_t i = 0; i < 4; ++i) ASSERT_EQ((*all)[i], fmt::format("{}:{}", i, round));
    }
  });
}

TEST(LocalBootstrap, NamesTheRanksThatDoNotCome) {
  auto group = std::make_shared<LocalGroup>(3, milliseconds(1));
  const Status status = local_bootstrap(group, 1)->allgather("x").status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ranks 0 2"));
}

// An equal-size allgather, as MPI's, over a local group.
CommCallbacks callbacks(Rank rank, const std::shared_ptr<LocalGroup>& group) {
  CommCallbacks out;
  out.rank = rank;
  out.size = group->size();
  out.allgather = [rank, group](const void* send, void* receive, size_t bytes) {
    const auto all = group->allgather(rank, Bytes(static_cast<const char*>(send), bytes));
    if (!all.ok()) return 1;
    for (size_t i = 0; i < all->size(); ++i) {
      if ((*all)[i].size() != bytes) return 2;
      std::memcpy(static_cast<char*>(receive) + i * bytes, (*all)[i].data(), bytes);
    }
    return 0;
  };
  return out;
}

TEST(CallbackBootstrap, GathersDifferentLengthsOverAnEqualSizeAllgather) {
  as_ranks(3, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = callback_bootstrap(callbacks(rank, group));
    const auto all = bootstrap->allgather(std::string(static_cast<size_t>(rank) * 1000, 'a'));
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*all)[i], std::string(i * 1000, 'a'));
    EXPECT_THAT(*bootstrap->allgather(""), ElementsAre("", "", ""));
  });
}

TEST(CallbackBootstrap, TooLongAStringOfOneRankFailsOnAll) {
  as_ranks(3, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = callback_bootstrap(callbacks(rank, group));
    const std::string mine(rank == 1 ? Bootstrap::kBytesMax + 1 : 5, 'a');
    EXPECT_EQ(bootstrap->allgather(mine).status().code(), Code::kResourceExhausted);
  });
}

TEST(CallbackBootstrap, AFailingCallbackIsReported) {
  CommCallbacks failing;
  failing.allgather = [](const void*, void*, size_t) { return 17; };
  const Status status = callback_bootstrap(failing)->allgather("x").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("17"));
}

}  // namespace
}  // namespace swale::net
