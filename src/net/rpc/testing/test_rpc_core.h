// What the tests of RpcCore share: some ranks' cores, and frames that move between them when the test says
// so.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/rpc/rpc_core.h"

namespace swale::net {

inline constexpr RpcMethod kEcho = 0;
inline constexpr RpcMethod kLookup = 1;

inline RpcParams params_of(Rank rank, int32_t size) {
  RpcParams params;
  params.rank = rank;
  params.ranks = size;
  params.host_of = [](Rank each) { return fmt::format("host{}", each); };
  params.methods = {"echo", "lookup"};
  params.frame_bytes = 4 * kKiB;
  params.window_bytes = 64 * kKiB;
  return params;
}

// Some ranks, and frames that move when told.
struct RpcRanks {
  explicit RpcRanks(
      int32_t size, const std::function<void(RpcParams&)>& change = [](RpcParams&) {}) {
    for (Rank rank = 0; rank < size; ++rank) {
      RpcParams params = params_of(rank, size);
      change(params);
      cores.push_back(std::make_unique<RpcCore>(params));
    }
  }
  RpcCore& operator[](Rank rank) { return *cores[static_cast<size_t>(rank)]; }

  std::string frame(Rank from, Rank to) {
    std::string bytes(4 * kKiB, '\0');
    bytes.resize((*this)[from].fill_frame(to, {bytes.data(), bytes.size()}));
    return bytes;
  }
  // Moves all that one rank has for another. The number of frames.
  size_t move(Rank from, Rank to) {
    size_t frames = 0;
    for (; (*this)[from].has_frame(to); ++frames) {
      const Status status = (*this)[to].on_frame(from, frame(from, to), now);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return frames;
  }
  void exchange() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank a = 0; a < size(); ++a) {
        for (Rank b = 0; b < size(); ++b) moved |= a != b && move(a, b) > 0;
      }
    }
  }
  std::vector<RpcRequest> requests(Rank rank) {
    std::vector<RpcRequest> taken;
    (*this)[rank].take_requests(1000, &taken, now);
    return taken;
  }
  // Answers all requests of a rank with their own bytes.
  size_t echo(Rank rank) {
    auto taken = requests(rank);
    for (RpcRequest& each : taken) (*this)[rank].reply(each.token, RpcPayload(std::move(each.payload)), now);
    return taken.size();
  }
  std::vector<RpcCompletion> completions(Rank rank) {
    std::vector<RpcCompletion> done;
    (*this)[rank].take_completions(&done);
    return done;
  }
  CallId call(Rank from, Rank to, std::string payload, uint32_t response_bytes_max = kKiB,
              Nanos deadline = kForever, uint64_t tag = 0) {
    const auto id = (*this)[from].call({.to = to,
                                        .method = kEcho,
                                        .payload = std::move(payload),
                                        .response_bytes_max = response_bytes_max,
                                        .deadline = deadline,
                                        .tag = tag},
                                       now);
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    return id.ok() ? *id : CallId{};
  }
  void expect_at_rest() {
    for (const auto& core : cores) {
      EXPECT_EQ(core->open_calls(), 0u);
      EXPECT_EQ(core->open_bytes(), 0u);
      EXPECT_EQ(core->open_requests(), 0u);
      EXPECT_EQ(core->held_bytes(), 0u);
    }
  }
  int32_t size() const { return static_cast<int32_t>(cores.size()); }

  std::vector<std::unique_ptr<RpcCore>> cores;
  Nanos now = seconds(100);
};

inline std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

}  // namespace swale::net
