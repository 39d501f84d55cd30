// Ranks close their job while memory runs out, at every allocation in turn: each hears the other's goodbye,
// or is told why not; none waits until its deadline.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::net::job_alloc_test {
namespace {

using swale::test::Allocations;

// What close() said to each rank, while the allocations n to n + length - 1 failed.
std::vector<Status> close_while_failing(int32_t ranks, const char* posting, int64_t n, int64_t length) {
  const auto group = std::make_shared<LocalGroup>(ranks);
  std::vector<Status> closed(static_cast<size_t>(ranks));
  std::barrier all_met(ranks, [&]() noexcept { Allocations::fail(n, length); });
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Allocations::spare_this_thread();
      JobOptions options;
      options.transport = "loopback";
      options.posting = posting;
      options.close_deadline = seconds(5);  // what was not said is said again after a 32nd of that
      auto job = Job::open(local_bootstrap(group, rank), options);
      const Status met = job.ok() ? (*job)->allgather("").status() : job.status();
      EXPECT_TRUE(met.ok()) << met.to_string();
      all_met.arrive_and_wait();
      if (!met.ok()) return;
      const Allocations::Library inside;
      closed[static_cast<size_t>(rank)] = contain([&] { return (*job)->close(); });
    });
  }
  for (auto& each : threads) each.join();
  Allocations::stop();
  return closed;
}

class CloseWithoutMemory : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, CloseWithoutMemory, testing::Values("queue", "direct"),
                         [](const auto& posting) { return std::string(posting.param); });

TEST_P(CloseWithoutMemory, NobodyWaitsForAGoodbyeThatWasNotSaid) {
  Allocations::spare_this_thread();
  for (const int64_t length : {1, 5}) {
    bool hit = true;
    int64_t n = 1;
    for (; hit; ++n) {
      ASSERT_LT(n, 1'000) << "it allocates without end";
      const std::vector<Status> closed = close_while_failing(2, GetParam(), n, length);
      hit = Allocations::hit();
      for (size_t rank = 0; rank < closed.size(); ++rank) {
        ASSERT_NE(closed[rank].code(), Code::kDeadlineExceeded)
            << "allocation " << n << " and " << length - 1 << " behind it, rank " << rank << ": "
            << closed[rank].to_string();
      }
    }
    EXPECT_GT(n, 3) << "it allocates nothing";
  }
}

}  // namespace
}  // namespace swale::net::job_alloc_test
