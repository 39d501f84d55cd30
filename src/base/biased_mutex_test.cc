#include "base/biased_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace swale::biased_mutex_test {
namespace {

TEST(BiasedMutex, FavoursTheFirstThreadUntilAnotherComes) {
  BiasedMutex mutex;
  for (int i = 0; i < 3; ++i) {
    const BiasedMutex::Guard guard(mutex);
  }
  std::thread([&] {
    EXPECT_FALSE(mutex.biased_to_this_thread());
    const BiasedMutex::Guard guard(mutex);
  }).join();
  EXPECT_FALSE(mutex.biased_to_this_thread());
  { const BiasedMutex::Guard guard(mutex); }
}

// Two plain (not atomic) words that must always be seen equal.
struct Guarded {
  BiasedMutex mutex;
  uint64_t first = 0;
  uint64_t second = 0;

  void step() {
    const BiasedMutex::Guard guard(mutex);
    ASSERT_EQ(first, second);
    ++first;
    ++second;
  }
};

TEST(BiasedMutex, ExcludesTheOthersWhileTheBiasIsTaken) {
  constexpr int kRounds = 300;
  constexpr uint64_t kOtherSteps = 100;
  for (int round = 0; round < kRounds; ++round) {
    Guarded guarded;
    guarded.step();  // the bias is this thread's
    std::atomic<int> ready{0};
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i) {
      others.emplace_back([&] {
        ++ready;
        for (uint64_t step = 0; step < kOtherSteps; ++step) guarded.step();
      });
    }
    uint64_t steps = 1;
    while (ready < 2 || steps < 200) {
      guarded.step();
      ++steps;
    }
    for (std::thread& other : others) other.join();
    ASSERT_EQ(guarded.first, steps + 2 * kOtherSteps);
  }
}

TEST(BiasedMutex, AnOwnerThatIsInsideForLongIsWaitedFor) {
  BiasedMutex mutex;
  auto held = std::make_unique<BiasedMutex::Guard>(mutex);
  std::atomic<bool> entered{false};
  std::thread other([&] {
    const BiasedMutex::Guard guard(mutex);
    entered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(entered);
  held.reset();
  other.join();
  EXPECT_TRUE(entered);
}

}  // namespace
}  // namespace swale::biased_mutex_test
