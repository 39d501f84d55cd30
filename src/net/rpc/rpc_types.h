// What users of Rpc and RpcCore say and hear: calls, requests, completions.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "net/fabric/transport.h"
#include "net/rpc/rpc_format.h"

namespace swale::net {

using RpcMethod = uint16_t;           // an index into RpcParams::methods
enum class CallId : uint64_t {};      // of this rank, never used again
enum class ReplyToken : uint64_t {};  // likewise

// A message to send: bytes of its own, bytes that several calls share, or bytes that are lent until keep().
class RpcPayload {
 public:
  RpcPayload() = default;
  RpcPayload(std::string bytes) : own_(std::move(bytes)) {}  // NOLINT: conversions are the point
  RpcPayload(const char* text) : own_(text) {}               // NOLINT
  RpcPayload(std::shared_ptr<const std::string> bytes) : shared_(std::move(bytes)) {}  // NOLINT

  static RpcPayload lent(Bytes bytes) {
    RpcPayload payload;
    payload.lent_ = bytes;
    return payload;
  }

  Bytes bytes() const {
    if (lent_.data() != nullptr) return lent_;
    return shared_ ? Bytes(*shared_) : Bytes(own_);
  }
  size_t size() const { return bytes().size(); }
  // The bytes, copied only if others share them.
  std::string take() { return shared_ || lent_.data() != nullptr ? std::string(bytes()) : std::move(own_); }
  // Lent bytes are its own from now on; those before `from` are anything then.
  void keep(size_t from) {
    if (lent_.data() == nullptr) return;
    own_.resize(lent_.size());
    std::copy(lent_.begin() + static_cast<ptrdiff_t>(from), lent_.end(),
              own_.begin() + static_cast<ptrdiff_t>(from));
    lent_ = {};
  }
  void clear() {
    lent_ = {};
    if (shared_) shared_.reset();
    if (own_.capacity() > std::string().capacity()) std::string().swap(own_);
    own_.clear();
  }

 private:
  Bytes lent_;
  std::string own_;
  std::shared_ptr<const std::string> shared_;
};

struct RpcCall {
  Rank to = -1;  // may be the caller itself
  RpcMethod method = 0;
  RpcPayload payload = {};
  // The caller has reserved memory for a response of so many bytes; a longer one fails the call.
  uint32_t response_bytes_max = 4 * kKiB;
  // Not empty: the response goes to these places, one after the other, and not into the completion. They have
  // at least response_bytes_max. Each is cut by what has come, so what is left tells how much that was. List
  // and places are the caller's again when the call is complete, however it ended.
  std::span<MutableBytes> into = {};
  Nanos deadline = kForever;  // on the clock of RpcCore's callers
  // Come back with the completion.
  uint64_t owner = 0;
  uint64_t tag = 0;
};

// Each call completes exactly once. A failure names the rank, its host, the method and how long was waited:
//   kUnavailable       (scope peer)       the rank is gone
//   kDeadlineExceeded  (scope operation)  it has not answered in time; it may still have done what was asked
//   kAborted           (scope operation)  cancelled; likewise
//   kAborted           (scope fatal)      this rank's end of the conversation has failed
// and whatever Status the other rank has replied with.
struct RpcCompletion {
  CallId id{};
  Rank from = -1;  // the rank that was asked
  RpcMethod method = 0;
  uint64_t owner = 0;
  uint64_t tag = 0;
  Result<std::string> response{std::string()};  // without bytes if they went to RpcCall::into
};

struct RpcRequest {
  ReplyToken token{};
  Rank from = -1;
  RpcMethod method = 0;
  std::string payload = {};
  uint32_t response_bytes_max = 0;
};

struct RpcParams {
  Rank rank = 0;
  int32_t ranks = 1;
  std::function<std::string(Rank)> host_of;  // for messages
  std::vector<std::string> methods;          // names, by RpcMethod, for messages; the same on all ranks
  size_t frame_bytes = 32 * kKiB;            // each frame that fill_frame gets; at least kRpcFrameBytesMin
  // of a request and of a response; at most kRpcMessageBytesMax
  size_t message_bytes_max = kRpcMessageBytesMax;
  // A request costs the bytes of request and largest response and kRpcCallBytes. All ranks have the same
  // numbers. What one caller may have under way at one server without asking. A request that costs more is
  // offered first.
  size_t window_bytes = kMiB;
  // What a server grants at a time to offered requests of all callers; at least the cost of the largest.
  size_t granted_bytes_max = 64 * kMiB;
  // What this rank may have asked for, answered and not yet taken included; bytes at least the cost of the
  // largest.
  size_t calls_max = 4096;
  size_t calls_bytes_max = 64 * kMiB;
};

inline constexpr size_t kRpcCallBytes = 256;  // for the entry of a call, on either side

inline size_t rpc_cost(size_t request_bytes, size_t response_bytes_max) {
  return request_bytes + response_bytes_max + kRpcCallBytes;
}

}  // namespace swale::net
