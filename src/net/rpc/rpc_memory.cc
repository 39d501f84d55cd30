#include "net/rpc/rpc_memory.h"

#include <algorithm>
#include <cassert>

namespace swale::net {
namespace {

constexpr uint64_t kRpcWindowBytesLeast = 16 * kKiB;  // of one caller
// Buffers of messages grow by doubling while they come.
constexpr uint64_t kRpcFixedBytes = 512 * kKiB;

uint64_t rpc_frames_bytes(const RpcOptions& options, int32_t size) {
  return static_cast<uint64_t>(size) * 2 * options.window_frames * options.frame_bytes;
}

RpcOptions least_rpc_options(const RpcOptions& options, int32_t size) {
  RpcOptions least = options;
  const size_t largest = rpc_cost(options.message_bytes_max, options.message_bytes_max);
  least.window_frames = 1;
  least.window_bytes_sum =
      std::min<size_t>(options.window_bytes_sum, static_cast<size_t>(size) * kRpcWindowBytesLeast);
  least.granted_bytes_max = std::min(options.granted_bytes_max, largest);
  least.calls_bytes_max = std::min(options.calls_bytes_max, largest);
  return least;
}

}  // namespace

size_t rpc_window_bytes(const RpcOptions& options, int32_t size) {
  return std::min(kRpcWindowBytesMax, options.window_bytes_sum / static_cast<size_t>(size));
}

uint64_t rpc_memory_bytes(const RpcOptions& options, int32_t size) {
  return kRpcFixedBytes + rpc_frames_bytes(options, size) +
         static_cast<uint64_t>(size) * rpc_window_bytes(options, size) + options.granted_bytes_max +
         options.calls_bytes_max;
}

uint64_t rpc_memory_bytes_least(const RpcOptions& options, int32_t size) {
  return rpc_memory_bytes(least_rpc_options(options, size), size);
}

RpcOptions rpc_options_within(const RpcOptions& options, int32_t size, uint64_t bytes) {
  const RpcOptions least = least_rpc_options(options, size);
  assert(bytes >= rpc_memory_bytes(least, size));
  constexpr uint64_t kSteps = 256;
  const auto between = [](uint64_t low, uint64_t high, uint64_t step) {
    return low + (high - low) * step / kSteps;
  };
  for (uint64_t step = kSteps; step > 0; --step) {
    RpcOptions some = least;
    some.window_frames = static_cast<uint16_t>(between(least.window_frames, options.window_frames, step));
    some.window_bytes_sum = between(least.window_bytes_sum, options.window_bytes_sum, step);
    some.granted_bytes_max = between(least.granted_bytes_max, options.granted_bytes_max, step);
    some.calls_bytes_max = between(least.calls_bytes_max, options.calls_bytes_max, step);
    if (rpc_memory_bytes(some, size) <= bytes) return some;
  }
  return least;
}

}  // namespace swale::net
