// The n-th allocation fails, for every n, in a pass and in queries that ask its cluster: no abort, no wrong
// answer, and the next pass ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/contain.h"
#include "base/log.h"
#include "base/testing/test_allocations.h"
#include "imd/format/cluster_list.h"
#include "imd/format/series_columns.h"
#include "imd/optimize/optimizer.h"
#include "imd/testing/test_optimize.h"
#include "io/memory_device.h"

namespace swale::imd::optimize_alloc_test {
namespace {

using swale::test::Allocations;
using swale::test::kForGood;
using test::Answers;
using test::ask_directory;
using test::kOptimized;

constexpr uint64_t kKeys = 8;

OptimizeOptions full_pass() {
  OptimizeOptions options = test::small_pass();
  options.full = true;
  return options;
}

// Runs `body` in the library's name, with allocations that fail. Whether one did.
template <class Body>
bool refuse(int64_t n, int64_t length, Body&& body) {
  Allocations::fail(n, length);
  {
    const Allocations::Library inside;
    static_cast<void>(contain([&] { body(); }));
  }
  const bool hit = Allocations::hit();
  Allocations::stop();
  return hit;
}

// `body` with each allocation refused in turn, at about `points` of them; `check` after each. How many
// failed.
template <class Body, class Check>
int64_t refuse_each(int64_t points, Body&& body, Check&& check) {
  if (const char* set = std::getenv("SWALE_ALLOC_POINTS")) points = std::strtoll(set, nullptr, 10);
  refuse(kForGood, 1, body);
  const int64_t total = Allocations::seen();
  const int64_t stride = points == 0 ? 1 : std::max<int64_t>(1, total / points);
  int64_t visited = 0;
  for (int64_t n = 1 + stride / 2; n <= total; n += stride) {
    for (const int64_t length : {int64_t{1}, kForGood}) {
      visited += refuse(n, length, body) ? 1 : 0;
      check(n);
      if (testing::Test::HasFailure()) return visited;
    }
  }
  fmt::print("{} of {} allocations failed\n", visited, 2 * total);
  return visited;
}

// Rows, or columns of a compressed directory.
class OptimizeAllocations : public testing::TestWithParam<SeriesLayout> {
 protected:
  void SetUp() override {
    Allocations::spare_this_thread();
    set_log_level(LogLevel::kOff);
    test::JobShape shape{.ranks = 2, .records = 40, .keys = kKeys};
    shape.slow = GetParam() == SeriesLayout::kColumns;
    if (shape.slow) shape.options.compression = Codec::kZstd;
    test::write_job(device_, shape, 1);
    before_ = ask_directory(device_, kKeys);
    ASSERT_EQ(before_.problem, "");
  }
  void TearDown() override { set_log_level(LogLevel::kWarn); }

  io::MemoryDevice device_;
  Answers before_;
};

TEST_P(OptimizeAllocations, APassThatLacksMemoryChangesNoAnswer) {
  int64_t failed = 0;
  const auto pass = [&] {
    if (!optimize_directory(device_, kOptimized, full_pass()).ok()) ++failed;
  };
  const int64_t visited = refuse_each(60, pass, [&](int64_t n) {
    EXPECT_TRUE(ask_directory(device_, kKeys) == before_) << n;
    const auto next = optimize_directory(device_, kOptimized, full_pass());
    EXPECT_TRUE(next.ok()) << n << ": " << next.status().to_string();
    EXPECT_TRUE(ask_directory(device_, kKeys) == before_) << n;
  });
  EXPECT_GT(visited, 60);
  EXPECT_GT(failed, 30);  // the canary: most of these allocations are needed
}

TEST_P(OptimizeAllocations, AQueryThatLacksMemoryAnswersNothingWrong) {
  ASSERT_TRUE(optimize_directory(device_, kOptimized, full_pass()).ok());
  Answers found;
  int64_t told = 0;
  const auto ask = [&] {
    found.problem = "threw";
    found = ask_directory(device_, 2);
  };
  ask();
  const Answers right = found;
  ASSERT_EQ(right.problem, "");
  refuse_each(150, ask, [&](int64_t n) {
    EXPECT_TRUE(!found.problem.empty() || found == right) << n;
    told += found.problem.empty() ? 0 : 1;
  });
  EXPECT_GT(told, 50);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OptimizeAllocations,
                         testing::Values(SeriesLayout::kRows, SeriesLayout::kColumns));

}  // namespace
}  // namespace swale::imd::optimize_alloc_test
