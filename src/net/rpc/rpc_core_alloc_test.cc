// Calls of an RpcCore end while memory runs out, at every allocation in turn: none is left behind for which
// nothing comes.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "net/rpc/testing/test_rpc_core.h"

namespace swale::net::rpc_core_alloc_test {
namespace {

using swale::test::Allocations;

// Three calls of rank 0 end by `end`, while the allocations n and n + 1 fail: what they are told.
std::vector<RpcCompletion> end_while_failing(int64_t n, const std::function<void(RpcRanks&)>& end) {
  RpcRanks ranks(2);
  const Nanos deadline = ranks.now + seconds(1);
  for (uint64_t tag = 0; tag < 3; ++tag) {
    ranks.call(0, 1, "x", 100, deadline, tag);
    if (tag == 1) ranks.move(0, 1);
  }
  ranks.now += seconds(2);
  Allocations::fail(n, 2);
  {
    const Allocations::Library inside;
    const Status done = contain([&] { end(ranks); });
    static_cast<void>(contain([&] {
      if (!done.ok()) ranks[0].fail(done, ranks.now);  // as RpcCore demands
    }));
  }
  Allocations::stop();
  ranks[0].tick(ranks.now);  // what is late ends now, at the latest
  return ranks.completions(0);
}

void expect_all_end(Code code, const std::function<void(RpcRanks&)>& end) {
  Allocations::spare_this_thread();
  bool hit = true;
  int64_t n = 1;
  for (; hit; ++n) {
    ASSERT_LT(n, 1'000) << "it allocates without end";
    const std::vector<RpcCompletion> done = end_while_failing(n, end);
    hit = Allocations::hit();
    ASSERT_EQ(done.size(), 3u) << "allocation " << n;
    for (const RpcCompletion& each : done) EXPECT_EQ(each.response.status().code(), code) << n;
  }
  EXPECT_GT(n, 2) << "it allocates nothing";
}

TEST(RpcCoreWithoutMemory, DeadlinesAreKept) {
  expect_all_end(Code::kDeadlineExceeded, [](RpcRanks& ranks) { ranks[0].tick(ranks.now); });
}

TEST(RpcCoreWithoutMemory, AFailureEndsAllCalls) {
  expect_all_end(Code::kAborted, [](RpcRanks& ranks) {
    ranks[0].fail(error(Code::kIoError, Scope::kFatal, "over"), ranks.now);
  });
}

TEST(RpcCoreWithoutMemory, APeerThatIsGoneEndsAllCalls) {
  expect_all_end(Code::kUnavailable, [](RpcRanks& ranks) {
    ranks[0].on_down(1, error(Code::kUnavailable, Scope::kPeer, "gone"), ranks.now);
  });
}

TEST(RpcCoreWithoutMemory, CancellingEndsAllCalls) {
  expect_all_end(Code::kAborted, [](RpcRanks& ranks) { ranks[0].cancel_all(0, ranks.now); });
}

}  // namespace
}  // namespace swale::net::rpc_core_alloc_test
