#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace swale::sim::fiber_test {
namespace {

TEST(Fiber, TakesTurnsWithTheSimulation) {
  std::string order;
  Fiber fiber([&](Fiber& self) {
    order += 'a';
    EXPECT_TRUE(self.wait());
    order += 'b';
    EXPECT_TRUE(self.wait());
    order += 'c';
  });
  order += '1';
  fiber.resume();
  order += '2';
  fiber.resume();
  EXPECT_FALSE(fiber.done());
  order += '3';
  fiber.resume();
  EXPECT_TRUE(fiber.done());
  fiber.resume();  // does nothing
  EXPECT_EQ(order, "1a2b3c");
}

TEST(Fiber, ManyAtATimeKeepWhatIsOnTheirStacks) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<int> sums(50);
  for (int number = 0; number < 50; ++number) {
    fibers.push_back(std::make_unique<Fiber>([&sums, number](Fiber& self) {
      std::vector<int> own;
      for (int turn = 0; turn < 10 && self.wait(); ++turn) own.push_back(number);
      for (const int each : own) sums[number] += each;
    }));
  }
  for (int turn = 0; turn < 11; ++turn) {
    for (const auto& fiber : fibers) fiber->resume();
  }
  for (int number = 0; number < 50; ++number) {
    EXPECT_TRUE(fibers[number]->done());
    EXPECT_EQ(sums[number], 10 * number);
  }
}

TEST(Fiber, ADestroyedOneUnwindsFirst) {
  const auto held = std::make_shared<int>(1);
  int refused = 0;
  {
    Fiber fiber([&](Fiber& self) {
      const std::shared_ptr<int> mine = held;
      while (self.wait()) {
      }
      ++refused;
      EXPECT_FALSE(self.wait());
    });
    fiber.resume();
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(refused, 1);
}

TEST(Fiber, ACancelledOneThatNeverBeganNeverBegins) {
  bool began = false;
  Fiber fiber([&](Fiber&) { began = true; });
  fiber.cancel();
  fiber.resume();
  EXPECT_FALSE(began);
}

TEST(Fiber, AnExceptionCrossesAWaitInItsBody) {
  std::string caught;
  Fiber fiber([&](Fiber& self) {
    try {
      try {
        throw std::runtime_error("first");
      } catch (const std::exception&) {
        self.wait();
        throw;
      }
    } catch (const std::exception& error) {
      caught = error.what();
    }
  });
  fiber.resume();
  EXPECT_EQ(caught, "");
  fiber.resume();
  EXPECT_EQ(caught, "first");
}

int depth_reached(int depth) {
  volatile char space[1000] = {};
  space[0] = static_cast<char>(depth);
  return depth == 0 ? space[0] : depth_reached(depth - 1) + 1;
}

TEST(Fiber, HasTheStackThatItSays) {
  int depth = 0;
  Fiber fiber([&](Fiber&) { depth = depth_reached(400); });
  fiber.resume();
  EXPECT_EQ(depth, 400);
}

}  // namespace
}  // namespace swale::sim::fiber_test
