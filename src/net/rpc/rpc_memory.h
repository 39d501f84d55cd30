// How much memory an Rpc takes, and its limits for a given amount: the more, the more requests of the ranks
// may be under way. Pure arithmetic.
//
//   frames    size * (window_frames to send + window_frames that have come) * frame_bytes
//   windows   what callers may have under way here without asking: size * window_bytes
//   granted   what this rank grants to large requests
//   calls     what this rank may have asked for
//
// The least is one frame a peer, a window of 16 KiB a peer, and one request of the largest size, granted and
// asked for. The windows, the grants and the calls get the rest in proportion to what they wish.
//
// Threads: free functions.
#pragma once

#include <cstdint>

#include "net/rpc/rpc.h"

namespace swale::net {

size_t rpc_window_bytes(const RpcOptions& options, int32_t size);  // RpcParams::window_bytes
// What RpcOptions allow in a job of `size` ranks.
uint64_t rpc_memory_bytes(const RpcOptions& options, int32_t size);
uint64_t rpc_memory_bytes_least(const RpcOptions& options, int32_t size);
// Lowers the limits so that rpc_memory_bytes is at most `bytes`. Requires rpc_memory_bytes_least. Ranks with
// equal options and bytes get equal limits.
RpcOptions rpc_options_within(const RpcOptions& options, int32_t size, uint64_t bytes);

}  // namespace swale::net
