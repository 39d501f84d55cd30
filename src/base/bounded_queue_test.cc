#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace swale {
namespace {

TEST(BoundedQueue, KeepsOrderAndRefusesBeyondItsCapacity) {
  BoundedQueue<int> queue(2);
  EXPECT_EQ(queue.try_push(1), QueueAnswer::kDone);
  EXPECT_EQ(queue.try_push(2), QueueAnswer::kDone);
  EXPECT_EQ(queue.try_push(3), QueueAnswer::kTimedOut);
  int item = 0;
  EXPECT_EQ(queue.try_pop(&item), QueueAnswer::kDone);
  EXPECT_EQ(item, 1);
  EXPECT_EQ(queue.try_pop(&item), QueueAnswer::kDone);
  EXPECT_EQ(item, 2);
  EXPECT_EQ(queue.try_pop(&item), QueueAnswer::kTimedOut);
  EXPECT_EQ(item, 2);
}

TEST(BoundedQueue, RefusedItemStaysTheCallers) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto item = std::make_unique<int>(1);
  EXPECT_EQ(queue.try_push(std::move(item)), QueueAnswer::kDone);
  item = std::make_unique<int>(2);
  EXPECT_EQ(queue.try_push(std::move(item)), QueueAnswer::kTimedOut);
  queue.close();
  EXPECT_EQ(queue.try_push(std::move(item)), QueueAnswer::kClosed);
  ASSERT_NE(item, nullptr);  // NOLINT: the state after a refused move is what is tested
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueue, CloseDrainsThenSaysClosed) {
  BoundedQueue<int> queue(4);
  ASSERT_EQ(queue.try_push(1), QueueAnswer::kDone);
  queue.close();
  int item = 0;
  EXPECT_EQ(queue.pop(&item, Deadline::none()), QueueAnswer::kDone);
  EXPECT_EQ(item, 1);
  EXPECT_EQ(queue.pop(&item, Deadline::none()), QueueAnswer::kClosed);
}

TEST(BoundedQueue, WaitsEndAtTheirDeadline) {
  BoundedQueue<int> queue(1);
  int item = 0;
  EXPECT_EQ(queue.pop(&item, Deadline::in(system_clock(), milliseconds(1))), QueueAnswer::kTimedOut);
  ASSERT_EQ(queue.try_push(1), QueueAnswer::kDone);
  EXPECT_EQ(queue.push(2, Deadline::in(system_clock(), milliseconds(1))), QueueAnswer::kTimedOut);
}

TEST(BoundedQueue, CloseWakesBothSides) {
  BoundedQueue<int> full(1);
  BoundedQueue<int> empty(1);
  ASSERT_EQ(full.try_push(1), QueueAnswer::kDone);
  std::thread producer([&] { EXPECT_EQ(full.push(2, Deadline::none()), QueueAnswer::kClosed); });
  std::thread consumer([&] {
    int item = 0;
    EXPECT_EQ(empty.pop(&item, Deadline::none()), QueueAnswer::kClosed);
  });
  full.close();
  empty.close();
  producer.join();
  consumer.join();
}

TEST(BoundedQueue, EveryItemArrivesOnceInItsProducersOrder) {
  constexpr int kPerProducer = 2000;
  BoundedQueue<int> queue(3);
  std::vector<std::thread> producers;
  for (int p = 0; p < 2; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kPerProducer; ++i)
        ASSERT_EQ(queue.push(p * kPerProducer + i, Deadline::none()), QueueAnswer::kDone);
    });
  }
  std::vector<int> taken[2];
  std::vector<std::thread> consumers;
  for (auto& mine : taken) {
    consumers.emplace_back([&queue, &mine] {
      int item = 0;
      while (queue.pop(&item, Deadline::none()) == QueueAnswer::kDone) mine.push_back(item);
    });
  }
  for (auto& producer : producers) producer.join();
  queue.close();
  for (auto& consumer : consumers) consumer.join();

  std::vector<bool> seen(2 * kPerProducer);
  for (const auto& mine : taken) {
    int last[2] = {-1, -1};
    for (const int item : mine) {
      EXPECT_FALSE(seen[static_cast<size_t>(item)]);
      seen[static_cast<size_t>(item)] = true;
      EXPECT_GT(item % kPerProducer, last[item / kPerProducer]);
      last[item / kPerProducer] = item % kPerProducer;
    }
  }
  EXPECT_EQ(taken[0].size() + taken[1].size(), seen.size());
}

}  // namespace
}  // namespace swale
