#include "net/rpc/rpc_memory.h"

#include <gtest/gtest.h>

#include "net/rpc/rpc_core.h"

namespace swale::net::rpc_memory_test {
namespace {

// For every job and budget: within it, limits that a core accepts, and never more than was wished.
TEST(RpcMemory, LimitsStayWithinEveryBudgetAndWork) {
  RpcOptions options;
  options.methods = {"ask"};
  for (const size_t message : {kMiB, kRpcMessageBytesMax}) {
    options.message_bytes_max = message;
    for (const int32_t size : {1, 2, 16, 64, 1000, 10'000}) {
      const uint64_t least = rpc_memory_bytes_least(options, size);
      const uint64_t wish = rpc_memory_bytes(options, size);
      ASSERT_LE(least, wish);
      for (uint64_t bytes = least; bytes <= wish; bytes += (wish - least) / 7 + 1) {
        const RpcOptions some = rpc_options_within(options, size, bytes);
        EXPECT_LE(rpc_memory_bytes(some, size), bytes);
        EXPECT_LE(some.window_frames, options.window_frames);
        EXPECT_LE(some.calls_bytes_max, options.calls_bytes_max);
        EXPECT_LE(some.granted_bytes_max, options.granted_bytes_max);
        RpcParams params;
        params.ranks = size;
        params.frame_bytes = some.frame_bytes;
        params.message_bytes_max = some.message_bytes_max;
        params.window_bytes = rpc_window_bytes(some, size);
        params.granted_bytes_max = some.granted_bytes_max;
        params.calls_bytes_max = some.calls_bytes_max;
        const Status works = RpcCore::check(params);
        EXPECT_TRUE(works.ok()) << works.to_string();
      }
      const RpcOptions all = rpc_options_within(options, size, wish);
      EXPECT_EQ(all.calls_bytes_max, options.calls_bytes_max);
      EXPECT_EQ(all.window_frames, options.window_frames);
      EXPECT_EQ(rpc_window_bytes(all, size), rpc_window_bytes(options, size));
    }
  }
}

// The arithmetic of docs/design/shared-resources.md.
TEST(RpcMemory, ARankAlone) {
  RpcOptions options;
  EXPECT_EQ(rpc_memory_bytes(options, 1) / kMiB, 193u);
  options.message_bytes_max = kMiB;
  EXPECT_EQ(rpc_memory_bytes_least(options, 1) / kMiB, 4u);
}

}  // namespace
}  // namespace swale::net::rpc_memory_test
