#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace swale::metrics_test {
namespace {

TEST(Metrics, ThreadsLoseNoCountAndNoPeak) {
  Counter counter;
  HighWater high;
  auto work = [&](uint64_t base) {
    for (uint64_t i = 0; i < 10000; ++i) {
      counter.add(2);
      high.update(base + i);
    }
  };
  std::thread other(work, 5000);
  work(0);
  other.join();
  EXPECT_EQ(counter.value(), 40000u);
  EXPECT_EQ(high.value(), 14999u);
  high.update(3);
  EXPECT_EQ(high.value(), 14999u);
}

}  // namespace
}  // namespace swale::metrics_test
