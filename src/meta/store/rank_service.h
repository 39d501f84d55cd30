// RankService: what a rank of a job with an open metadata store answers: the requests to the servers that it
// hosts (Service), and the news that bytes of a log have moved, or that a sealed file was removed, which
// every rank hears.
//
// Threads: any. Errors: a request to a server that is not here is refused. Limits: none.
#pragma once

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/contain.h"
#include "base/mutex.h"
#include "meta/client/table_news.h"
#include "meta/server/service.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

class RankService final : public net::RpcService {
 public:
  // `servers`: of this rank; nullptr: none.
  explicit RankService(Service* servers) : servers_(servers) {}

  // Before any rank asks.
  void start(net::Rpc* rpc) {
    const MutexLock lock(mutex_);
    assert(rpc_ == nullptr && rpc != nullptr);
    rpc_ = rpc;
  }
  const TableNews& table_news() const { return table_news_; }

  void on_requests(std::span<net::RpcRequest> requests) override {
    const auto news = [](const net::RpcRequest& each) {
      return each.method == static_cast<net::RpcMethod>(Method::kRelocated) ||
             each.method == static_cast<net::RpcMethod>(Method::kRemoved);
    };
    // Together as they came: a delegate combines them.
    if (servers_ != nullptr && std::none_of(requests.begin(), requests.end(), news))
      return servers_->on_requests(requests);
    for (net::RpcRequest& each : requests) {
      if (news(each)) {
        reply(each.token, hear(each));
      } else if (servers_ != nullptr) {
        servers_->on_requests(std::span(&each, 1));
      } else {
        reply(each.token, error(Code::kUnsupported, Scope::kOperation, "this rank hosts no metadata server"));
      }
    }
  }

 private:
  Result<std::string> hear(const net::RpcRequest& each) {
    if (each.method == static_cast<net::RpcMethod>(Method::kRelocated)) {
      table_news_.relocation_heard();
      return std::string();
    }
    SWALE_ASSIGN_OR_RETURN(const FileId file, decode_removed(each.payload));
    table_news_.removal_heard(file);
    return std::string();
  }
  void reply(net::ReplyToken token, Result<std::string> response) {
    net::Rpc* rpc = nullptr;
    {
      const MutexLock lock(mutex_);
      rpc = rpc_;
    }
    if (rpc == nullptr) return;  // nobody asks yet
    static_cast<void>(contain([&] {
      response.ok() ? rpc->reply(token, net::RpcPayload(*std::move(response)))
                    : rpc->reply(token, response.status());
    }));
  }

  Service* const servers_;
  Mutex mutex_;
  net::Rpc* rpc_ GUARDED_BY(mutex_) = nullptr;
  TableNews table_news_;
};

}  // namespace swale::meta
