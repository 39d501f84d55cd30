// RankService: what a rank of a job with an open metadata store answers: the requests to the servers that it hosts (Service),
// and the news that bytes of a log have moved, which every rank hears.
//
// Threads: any. Errors: a request to a server that is not here is refused. Limits: none.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "base/contain.h"
#include "meta/server/service.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

class RankService final : public net::RpcService {
 public:
  // `servers`: of this rank; nullptr: none.
  explicit RankService(Service* servers) : servers_(servers) {}

  // Before any rank asks.
  void start(net::Rpc* rpc) {
    const std::lock_guard lock(mutex_);
    rpc_ = rpc;
  }
  // How many relocations this rank has heard of.
  const std::atomic<uint64_t>& relocations() const { return relocations_; }

  void on_requests(std::span<net::RpcRequest> requests) override {
    const auto news = [](const net::RpcRequest& each) {
      return each.method == static_cast<net::RpcMethod>(Method::kRelocated);
    };
    // Together as they came: a delegate combines them.
    if (servers_ != nullptr && std::none_of(requests.begin(), requests.end(), news))
      return servers_->on_requests(requests);
    for (net::RpcRequest& each : requests) {
      if (news(each)) {
        ++relocations_;
        reply(each.token, std::string());
      } else if (servers_ != nullptr) {
        servers_->on_requests(std::span(&each, 1));
      } else {
        reply(each.token, error(Code::kUnsupported, Scope::kOperation, "this rank hosts no metadata server"));
      }
    }
  }

 private:
  void reply(net::ReplyToken token, Result<std::string> response) {
    net::Rpc* rpc = nullptr;
    {
      const std::lock_guard lock(mutex_);
      rpc = rpc_;
    }
    if (rpc == nullptr) return;  // nobody asks yet
    static_cast<void>(contain([&] {
      response.ok() ? rpc->reply(token, net::RpcPayload(*std::move(response)))
                    : rpc->reply(token, response.status());
    }));
  }

  Service* const servers_;
  std::mutex mutex_;
  net::Rpc* rpc_ = nullptr;
  std::atomic<uint64_t> relocations_{0};
};

}  // namespace swale::meta
