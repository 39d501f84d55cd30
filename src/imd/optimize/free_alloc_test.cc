// The n-th allocation fails, for every n, in a free: no abort, no wrong answer, and the next one ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/contain.h"
#include "base/log.h"
#include "base/testing/test_allocations.h"
#include "imd/testing/test_free.h"
#include "io/memory_device.h"

namespace swale::imd::free_alloc_test {
namespace {

using swale::test::Allocations;
using swale::test::kForGood;
using test::ask_all_of;
using test::Everything;
using test::free_logs;
using test::kOptimized;

constexpr uint64_t kKeys = 4;

// A free on a copy of a directory, with `length` allocations refused from the n-th on.
class FreeAllocations : public testing::Test {
 protected:
  void SetUp() override {
    Allocations::spare_this_thread();
    set_log_level(LogLevel::kOff);
    test::write_job(base_, {.ranks = 2, .epochs = 2, .records = 20, .keys = kKeys}, 1);
    ASSERT_TRUE(optimize_directory(base_, kOptimized, test::small_pass()).ok());
    before_ = ask_all_of(base_, kKeys);
    ASSERT_EQ(before_.problem, "");
  }
  void TearDown() override { set_log_level(LogLevel::kWarn); }

  // Whether one was refused.
  bool refuse(int64_t n, int64_t length) {
    io::MemoryDevice device;
    test::copy_tree(base_, kOptimized, device);
    bool ended = false;
    Allocations::fail(n, length);
    {
      const Allocations::Library inside;
      static_cast<void>(contain([&] { ended = free_logs(device).ok(); }));
    }
    const bool hit = Allocations::hit();
    seen_ = Allocations::seen();
    Allocations::stop();
    failed_ += ended ? 0 : 1;
    const Everything found = ask_all_of(device, kKeys);
    EXPECT_TRUE(found == before_) << n << ": " << found.problem;
    const auto next = free_logs(device);
    EXPECT_TRUE(next.ok()) << n << ": " << next.status().to_string();
    EXPECT_TRUE(ask_all_of(device, kKeys) == before_) << n;
    return hit;
  }

  io::MemoryDevice base_;
  Everything before_;
  int64_t seen_ = 0;
  int64_t failed_ = 0;
};

TEST_F(FreeAllocations, AFreeThatLacksMemoryChangesNoAnswer) {
  int64_t points = 60;
  if (const char* set = std::getenv("SWALE_ALLOC_POINTS")) points = std::strtoll(set, nullptr, 10);
  refuse(kForGood, 1);
  const int64_t total = seen_;
  ASSERT_EQ(failed_, 0);
  const int64_t stride = points == 0 ? 1 : std::max<int64_t>(1, total / points);
  int64_t visited = 0;
  for (int64_t n = 1 + stride / 2; n <= total && !HasFailure(); n += stride) {
    for (const int64_t length : {int64_t{1}, kForGood}) visited += refuse(n, length) ? 1 : 0;
  }
  fmt::print("{} of {} allocations failed, {} calls\n", visited, 2 * total, failed_);
  EXPECT_GT(visited, 60);
  EXPECT_GT(failed_, 30);  // the canary: most of these allocations are needed
}

}  // namespace
}  // namespace swale::imd::free_alloc_test
